"""What an attempt may write: while it has the lease, and when its directory was removed under it; else nothing."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from marin.execution.lease.fencing import LeaseToken
from marin.execution.lease.status_words import STATUS_RUNNING, status_path
from marin.output_files import LOCK_SUFFIX
from rigging.distributed_lock import LeaseLock, LeaseLostError, create_lock
from rigging.filesystem import read_bytes_or_none, write_bytes_atomic

WRITES: list[Callable[[LeaseToken], None]] = [
    lambda token: token.write("x", b"late"),
    lambda token: token.remove("kept"),
]


@pytest.fixture(params=["local", "memory"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{tmp_path}/out" if request.param == "local" else f"memory://{tmp_path.name}/out"


def take(output: str, worker_id: str) -> LeaseLock:
    lock = create_lock(status_path(output) + LOCK_SUFFIX, worker_id)
    assert lock.try_acquire()
    return lock


def remove_all(output: str) -> None:
    if output.startswith("memory://"):
        fs, path = fsspec.core.url_to_fs(output)
        fs.rm(path, recursive=True)
    else:
        shutil.rmtree(output)


def test_a_holder_writes_and_removes(output: str) -> None:
    take(output, "w")
    token = LeaseToken(output, "w")
    token.write("x", b"1")
    token.write("x", b"2")
    assert read_bytes_or_none(f"{output}/x") == b"2"
    token.remove("x")
    token.remove("x")
    assert read_bytes_or_none(f"{output}/x") is None


@pytest.mark.parametrize("write", WRITES, ids=["write", "remove"])
@pytest.mark.parametrize("now", ["now held by other", "nobody has it now"])
def test_who_has_lost_the_lease_changes_nothing(output: str, now: str, write: Callable[[LeaseToken], None]) -> None:
    write_bytes_atomic(f"{output}/kept", b"1")
    lock = take(output, "other")
    if now == "nobody has it now":
        assert lock.release()
    with pytest.raises(LeaseLostError, match=f"the lease on {output} is lost to w: {now}"):
        write(LeaseToken(output, "w"))
    assert read_bytes_or_none(f"{output}/kept") == b"1"
    assert read_bytes_or_none(f"{output}/x") is None


def test_a_directory_that_the_step_removed_itself_costs_no_lease(output: str, caplog: pytest.LogCaptureFixture) -> None:
    lock = take(output, "w")
    write_bytes_atomic(f"{output}/before", b"1")
    remove_all(output)
    with caplog.at_level(logging.WARNING):
        LeaseToken(output, "w").write("x", b"1")
    assert read_bytes_or_none(f"{output}/x") == b"1"
    assert read_bytes_or_none(status_path(output)) == STATUS_RUNNING.encode()
    found = lock.holder()
    assert found is not None
    assert found.worker_id == "w"
    assert f"the output directory {output} was removed while its step was at work" in caplog.text


def test_where_another_has_begun_and_ended_meanwhile_nothing_is_written(output: str) -> None:
    write_bytes_atomic(status_path(output), b"SUCCESS")
    with pytest.raises(LeaseLostError, match="nobody has it now"):
        LeaseToken(output, "w").write("x", b"1")
    assert read_bytes_or_none(f"{output}/x") is None
    assert read_bytes_or_none(status_path(output)) == b"SUCCESS"
