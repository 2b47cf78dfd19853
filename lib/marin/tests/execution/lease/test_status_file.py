"""Status files and the lock beside them."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from marin.execution.lease.file_lease import StatusOnDisk
from marin.execution.lease.status_file import (
    PreviousTaskFailedError,
    StatusFile,
    StepAlreadyDone,
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
        (None, None),
        (b"", None),
        (b"SUCCESS", "SUCCESS"),
        (b"FAILED\n", "FAILED"),
        (b'{"status": "RUNNING"}\n{"status": "SUCCESS", "date": 1}\n', "SUCCESS"),
        (b'{"status": "RUNNING"}\n{"stat', "RUNNING"),
        (b'{"other": 1}\n', None),
        (b"{\xff", None),
    ],
)
def test_both_forms_of_a_status_file_are_read(content: bytes | None, status: str | None) -> None:
    assert parse_status(content) == status


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_many_statuses_are_read_at_once(tmp_path: Path, scheme: str) -> None:
    StatusFile(f"{tmp_path}/a").write_status(STATUS_SUCCESS)
    paths = [f"{scheme}{tmp_path}/{name}" for name in "ab"]
    assert read_statuses(paths) == {paths[0]: STATUS_SUCCESS, paths[1]: None}


def test_many_statuses_are_read_from_another_filesystem() -> None:
    paths = [f"memory://marin-status-test/{index}" for index in range(20)]
    for path in paths[::2]:
        StatusFile(path).write_status(STATUS_SUCCESS)
    assert read_statuses(paths) == {path: STATUS_SUCCESS if path in paths[::2] else None for path in paths}


def test_the_lock_is_held_by_one(tmp_path: Path) -> None:
    first, second = (StatusFile(str(tmp_path), name) for name in ("one", "two"))
    assert first.try_acquire_lock()
    assert first.has_active_lock()
    assert not second.try_acquire_lock()
    first.refresh_lock()
    first.release_lock()
    assert second.try_acquire_lock()
    second.release_lock()


def test_step_lock_says_what_is_not_to_be_done(tmp_path: Path) -> None:
    status = StatusFile(str(tmp_path))
    status.write_status(STATUS_SUCCESS)
    with pytest.raises(StepAlreadyDone), step_lock(str(tmp_path), "a"):
        pytest.fail("the block ran")
    status.write_status(STATUS_FAILED)
    with (
        pytest.raises(PreviousTaskFailedError, match="step a failed previously"),
        step_lock(str(tmp_path), "a", force_run_failed=False),
    ):
        pytest.fail("the block ran")
    with step_lock(str(tmp_path), "a") as locked:
        assert status.has_active_lock()
        locked.write_status(STATUS_SUCCESS)
    assert not status.has_active_lock()
    assert status.status == STATUS_SUCCESS


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


def test_worker_id_names_this_thread() -> None:
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(worker_id).result()
    assert worker_id() == worker_id() != other


@pytest.mark.parametrize(
    ("there", "status", "previous"),
    [
        (None, STATUS_RUNNING, None),
        (b"", STATUS_RUNNING, None),
        (b"RUNNING", STATUS_SUCCESS, STATUS_RUNNING),
        (b"RUNNING\n", STATUS_SUCCESS, STATUS_RUNNING),
        (None, STATUS_SUCCESS, STATUS_RUNNING),
        (b"FAILED", STATUS_RUNNING, STATUS_FAILED),
        (b"RUNNING", STATUS_FAILED, STATUS_RUNNING),
    ],
)
def test_a_status_replaces_whatever_is_there(tmp_path: Path, there: bytes | None, status: str, previous: str) -> None:
    path = tmp_path / ".executor_status"
    if there is not None:
        path.write_bytes(there)
    StatusOnDisk(str(path)).write(status, previous)
    assert path.read_bytes() == status.encode()
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("previous", [None, STATUS_RUNNING, STATUS_FAILED])
def test_a_status_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, previous: str | None
) -> None:
    path = tmp_path / ".executor_status"
    if previous is not None:
        path.write_text(previous)

    def full(_descriptor: int, _data: object) -> int:
        raise OSError(28, "No space left on device")

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match=r"No space left on device: .*/\.executor_status"):
        StatusOnDisk(str(path)).write(STATUS_SUCCESS, previous)
    assert len(os.listdir("/proc/self/fd")) == before
