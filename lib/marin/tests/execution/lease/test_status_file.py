"""Status files and the lock beside them."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from marin.execution.lease.status_file import (
    PreviousTaskFailedError,
    StatusFile,
    StepAlreadyDone,
    distributed_lock,
    mark_dependency_failed,
    step_lock,
    worker_id,
)
from marin.execution.lease.status_words import STATUS_FAILED, STATUS_RUNNING, STATUS_SUCCESS, parse_status
from marin.execution.record.output_state import read_statuses
from rigging.distributed_lock import LeaseLostError


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (None, None), (b"", None), (b"  \n", None), (b"SUCCESS", "SUCCESS"), (b" FAILED\n", "FAILED"),
        (b'{"status": "RUNNING"}\n{"status": "SUCCESS", "date": 1}\n', "SUCCESS"),
        (b'{"status": "RUNNING"}\n{"stat', "RUNNING"), (b'{"status": "RUNNING"}\n{"other": 1}\n', "RUNNING"),
        (b'{"status": "RUNNING"}\n[1]', "RUNNING"), (b'{"other": 1}\n', None), (b"{", None), (b"{\xff", None),
        (b'{"status": 5}', "5"), (b"{}\n" + b"[" * 100_000, None),
    ],
)  # fmt: skip
def test_both_forms_of_a_status_file_are_read(content: bytes | None, status: str | None) -> None:
    assert parse_status(content) == status


@pytest.mark.parametrize("scheme", ["", "file://", "memory://statuses"])
def test_many_statuses_are_read_at_once(tmp_path: Path, scheme: str) -> None:
    paths = [f"{scheme}{tmp_path}/{index}" for index in range(20)]
    for path in paths[::2]:
        StatusFile(path).write_status(STATUS_SUCCESS)
    assert read_statuses(paths) == {path: STATUS_SUCCESS if path in paths[::2] else None for path in paths}


def test_step_lock_says_what_is_not_to_be_done(tmp_path: Path) -> None:
    status, other = StatusFile(str(tmp_path)), StatusFile(str(tmp_path), "other")
    status.write_status(STATUS_SUCCESS)
    with pytest.raises(StepAlreadyDone), step_lock(str(tmp_path), "a"):
        pytest.fail("the block ran")
    status.write_status(STATUS_FAILED)
    failed = pytest.raises(PreviousTaskFailedError, match="step a failed previously")
    with failed, step_lock(str(tmp_path), "a", force_run_failed=False):
        pytest.fail("the block ran")
    with step_lock(str(tmp_path), "a") as locked:
        assert status.has_active_lock()
        assert not other.try_acquire_lock()
        locked.write_status(STATUS_SUCCESS)
    assert not status.has_active_lock()
    assert status.status == STATUS_SUCCESS
    assert other.try_acquire_lock()
    other.refresh_lock()
    other.release_lock()
    assert not status.has_active_lock()


def test_no_status_is_written_without_the_lock(tmp_path: Path) -> None:
    lost = step_lock(str(tmp_path))
    locked = lost.__enter__()
    locked.held.lost.set()
    with pytest.raises(LeaseLostError):
        locked.write_status(STATUS_SUCCESS)
    with pytest.raises(LeaseLostError):
        lost.__exit__(None, None, None)
    assert StatusFile(str(tmp_path)).status is None


def test_dep_failed_overwrites_neither_success_nor_a_run_at_work(tmp_path: Path) -> None:
    status = StatusFile(str(tmp_path))
    status.write_status(STATUS_SUCCESS)
    mark_dependency_failed(str(tmp_path))
    assert status.status == STATUS_SUCCESS
    with step_lock(str(tmp_path / "other")) as locked:
        locked.write_status("RUNNING")
        mark_dependency_failed(str(tmp_path / "other"))
        assert locked.status == "RUNNING"
    mark_dependency_failed(str(tmp_path / "other"))
    assert StatusFile(str(tmp_path / "other")).status == "DEP_FAILED"


def test_a_locked_function_runs_once_under_a_true_status(tmp_path: Path) -> None:
    seen: list[object] = []

    @distributed_lock
    def make(output_path: str, n: int) -> int:
        status = StatusFile(output_path)
        seen.append((n, status.status, status.has_active_lock()))
        return n + 1

    path = str(tmp_path / "out")
    assert make(path, 3) == 4
    assert StatusFile(path).status == STATUS_SUCCESS
    assert not StatusFile(path).has_active_lock()
    with pytest.raises(StepAlreadyDone):
        make(path, 4)
    assert seen == [(3, STATUS_RUNNING, True)]


def test_a_locked_function_that_failed_is_tried_again_unless_told_otherwise(tmp_path: Path) -> None:
    path = str(tmp_path / "out")

    def fail(output_path: str) -> None:
        raise ValueError("bad")

    for _ in range(2):
        with pytest.raises(ValueError, match="bad"):
            distributed_lock(fail)(path)
    assert StatusFile(path).status == STATUS_FAILED
    with pytest.raises(PreviousTaskFailedError, match="failed previously"):
        distributed_lock(force_run_failed=False)(fail)(path)


def test_worker_id_names_this_thread() -> None:
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(worker_id).result()
    assert worker_id() == worker_id() != other
