"""An attempt that lost its lease writes nothing about its step; a lease survives the removal of its directory."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from marin.execution import Executor, ExecutorStep, this_output_path
from marin.execution.jobs.results import keep_result, take_result_of_job
from marin.execution.jobs.step_call import call_step_in_job
from marin.execution.lease.fencing import FreshFiles
from marin.execution.lease.opening import open_step_lease
from marin.execution.lease.status_file import LockedStatus, StatusFile, mark_dependency_failed, step_lock
from marin.execution.lease.step_lease import LeaseTerms, StepLease, step_lease
from rigging.distributed_lock import LeaseLostError
from rigging.filesystem import read_bytes_or_none, write_bytes_atomic
from support.rigging.clock import FakeClock
from support.rigging.shared import shared_gcs_server, shared_s3_server

TERMS = LeaseTerms(5, 30, new_id=lambda: f"elsewhere-{os.urandom(6).hex()}")


OF_SERVERS = [pytest.param(scheme, marks=pytest.mark.process) for scheme in ("gs", "s3")]


@pytest.fixture(params=["", "memory", *OF_SERVERS])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A place for outputs on each kind of storage."""
    scheme = request.param
    if scheme in ("", "memory"):
        yield f"memory://{tmp_path}" if scheme else str(tmp_path)
        return
    server = shared_gcs_server() if scheme == "gs" else shared_s3_server()
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    fsspec.filesystem(scheme).clear_instance_cache()
    bucket = f"b{hashlib.md5(request.node.nodeid.encode()).hexdigest()}"
    server.create_bucket(bucket)
    yield f"{scheme}://{bucket}/prefix"
    fsspec.filesystem(scheme).clear_instance_cache()


def begun(path: str) -> StepLease:
    lease = open_step_lease(path, "a", TERMS)
    assert lease.begin(force_run_failed=True)
    return lease


def taken_over(path: str) -> StepLease:
    """A successor of whoever has the lease, as after a machine that stood still for long."""
    rm(f"{path}/.executor_status.lock")
    return begun(path)


def rm(path: str) -> None:
    fs, name = fsspec.core.url_to_fs(path)
    fs.rm(name, recursive=fs.isdir(name))


@pytest.mark.parametrize("successor_has_written", [True, False])
def test_a_late_attempt_leaves_its_successors_files_alone(root: str, successor_has_written: bool) -> None:
    path, name = f"{root}/out", ".artifact"
    late = begun(path)
    late.write(name, b'"before"')
    successor = taken_over(path)
    if successor_has_written:
        successor.write(name, b'"successor"')
    with pytest.raises(LeaseLostError):
        late.write(name, b'"late"')
    assert late.lost
    successor.write(name, b'"successor"')
    with pytest.raises(LeaseLostError):
        late.write(name, b'"later"')
    with pytest.raises(LeaseLostError):
        late.remove(name)
    successor.end("SUCCESS")
    with pytest.raises(LeaseLostError):
        late.end("FAILED")
    assert read_bytes_or_none(f"{path}/{name}") == b'"successor"'
    assert StatusFile(path).status == "SUCCESS"


@pytest.mark.parametrize("now", ["held by", "nobody has it"])
def test_a_job_whose_step_lost_its_lease_writes_and_removes_nothing(root: str, now: str) -> None:
    path = f"{root}/out"
    token = begun(path).token()
    keep_result("first", path, token)
    keep_result("again", path, token)
    token.remove(".nothing")
    successor = taken_over(path)
    keep_result("successor", path, successor.token())
    if now == "nobody has it":
        successor.end("SUCCESS")
    # What cannot be kept as JSON would remove an older value.
    for late in ("late", object()):
        with pytest.raises(LeaseLostError, match=rf"the lease on {path} is lost to \S+: (now )?{now}"):
            keep_result(late, path, token)
    assert json.loads(read_bytes_or_none(f"{path}/.artifact") or b"") == "successor"


def test_a_first_attempts_value_is_written_without_a_read_and_only_under_its_lease(root: str) -> None:
    path = f"{root}/out"
    files = FreshFiles(begun(path).token())
    keep_result("first", path, files)
    keep_result("again", path, files)  # it is not new after all
    assert read_bytes_or_none(f"{path}/.artifact") == b'"again"'
    files.remove(".artifact")
    successor = taken_over(path)
    with pytest.raises(LeaseLostError):
        keep_result("late", path, files)
    assert read_bytes_or_none(f"{path}/.artifact") is None
    keep_result("successor", path, successor.token())
    assert read_bytes_or_none(f"{path}/.artifact") == b'"successor"'


def test_the_value_of_a_job_that_another_run_adopted_is_that_runs(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Iris jobs outlive a killed run; the next one takes the lease over, and waits for the same job."""
    path = f"{root}/out"
    token = begun(path).token()
    successor = taken_over(path)
    monkeypatch.setenv("IRIS_JOB_ID", "/user/job")
    call_step_in_job(lambda _: "made", (None,), path, None, token)
    assert read_bytes_or_none(f"{path}/.artifact") is None
    take_result_of_job(path, "/user/another-job", successor)
    assert read_bytes_or_none(f"{path}/.artifact") is None
    take_result_of_job(path, "/user/job", successor)
    assert read_bytes_or_none(f"{path}/.artifact") == b'"made"'
    call_step_in_job(lambda _: object(), (None,), path, None, token)
    successor.end("SUCCESS")
    with pytest.raises(LeaseLostError):
        keep_result("late", path, token)


def test_statuses_under_a_lock_are_fenced_too(root: str) -> None:
    path = f"{root}/out"
    stack = contextlib.ExitStack()
    late: LockedStatus = stack.enter_context(step_lock(path))
    late.write_status("RUNNING")
    successor = taken_over(path)
    with pytest.raises(LeaseLostError):
        late.write_status("SUCCESS")
    with pytest.raises(LeaseLostError):
        stack.close()
    assert StatusFile(path).status == "RUNNING"
    successor.end("SUCCESS")
    mark_dependency_failed(path)
    assert StatusFile(path).status == "SUCCESS"


def write_in_new_directory(path: str) -> str:
    rm(path)
    write_bytes_atomic(f"{path}/data", b"made")
    return "kept"


@pytest.mark.parametrize("renewed", [True, False])
def test_a_step_may_remove_its_own_output_first(root: str, renewed: bool, caplog: pytest.LogCaptureFixture) -> None:
    def work(path: str) -> str:
        result = write_in_new_directory(path)
        if renewed:
            step_lease().renew()
            assert StatusFile(path).has_active_lock()
            assert StatusFile(path).status == "RUNNING"
        return result

    executor = Executor(root, f"{root}/experiments")
    step = ExecutorStep(name="a", fn=work, config=this_output_path())
    executor.run([step])
    path = executor.output_paths[step]
    assert StatusFile(path).status == "SUCCESS"
    assert read_bytes_or_none(f"{path}/.artifact") == b'"kept"'
    assert read_bytes_or_none(f"{path}/data") == b"made"
    assert b'"name": "a"' in (read_bytes_or_none(f"{path}/.executor_info") or b"")
    assert read_bytes_or_none(f"{path}/.executor_status.lock") is None
    assert "was removed while its step was running" in caplog.text


@pytest.mark.parametrize("its_end", ["SUCCESS", "FAILED", None])
def test_a_removed_directory_in_which_another_has_begun_is_the_others(root: str, its_end: str | None) -> None:
    path = f"{root}/out"
    first = begun(path)
    rm(path)
    other = begun(path)
    if its_end is not None:
        other.end(its_end)
    with pytest.raises(LeaseLostError):
        first.renew()
    with pytest.raises(LeaseLostError):
        first.end("SUCCESS")
    with pytest.raises(LeaseLostError):
        first.token().write("x", b"late")
    assert read_bytes_or_none(f"{path}/x") is None
    assert StatusFile(path).status == (its_end or "RUNNING")


def test_a_job_that_removed_the_directory_goes_on_under_the_lease(root: str, caplog: pytest.LogCaptureFixture) -> None:
    path = f"{root}/out"
    token = begun(path).token()
    rm(path)
    token.write("x", b"1")
    assert read_bytes_or_none(f"{path}/x") == b"1"
    assert (StatusFile(path).status, StatusFile(path).has_active_lock()) == ("RUNNING", True)
    assert f"the output directory {path} was removed while its step was running" in caplog.text


def test_a_lock_that_was_taken_away_is_lost(root: str) -> None:
    """As by `python -m rigging.lease take`: the status is still there."""
    lease = begun(f"{root}/out")
    rm(f"{root}/out/.executor_status.lock")
    with pytest.raises(LeaseLostError):
        lease.renew()
    assert StatusFile(f"{root}/out").status == "RUNNING"


def test_a_renewal_does_not_make_a_directory_that_its_function_is_about_to_make(tmp_path: Path) -> None:
    lease = begun(str(tmp_path / "out"))
    shutil.rmtree(tmp_path / "out")
    lease.renew()
    (tmp_path / "out").mkdir()
    lease.end("SUCCESS")
    assert (tmp_path / "out" / ".executor_status").read_text() == "SUCCESS"


def test_who_waits_for_a_step_that_removes_its_directory_goes_on_waiting(root: str) -> None:
    path = f"{root}/out"
    first, waiting = (open_step_lease(path, name, LeaseTerms(5, 30)) for name in ("first", "waiting"))
    assert first.begin(force_run_failed=True)
    assert not waiting.is_free()
    rm(path)
    assert not waiting.is_free()
    first.renew()
    if root.startswith("/"):  # a missing directory is left to its function
        assert not (Path(path)).exists()
        Path(path).mkdir()
        first.renew()
    assert not waiting.begin(force_run_failed=True)
    first.end("FAILED")
    assert waiting.is_free()
    assert waiting.begin(force_run_failed=True)
    waiting.end("SUCCESS")


def test_a_step_that_does_not_put_its_lease_back_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    clock = FakeClock(now=time.time())
    path = str(tmp_path / "out")
    first = open_step_lease(path, "first")
    waiting = open_step_lease(path, "waiting", LeaseTerms(5, 30, clock=clock))
    assert first.begin(force_run_failed=True)
    assert not waiting.is_free()
    rm(path)
    clock.advance(9)
    assert not waiting.is_free()
    clock.advance(1)
    assert waiting.begin(force_run_failed=True)
    with pytest.raises(LeaseLostError):
        first.end("SUCCESS")
