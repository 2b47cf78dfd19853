"""A status file on this machine: written in place where no part of it can be taken for a status."""

import errno
import os
import threading
from pathlib import Path

import pytest

from marin.execution.lease.file_lease import StatusOnDisk
from marin.execution.lease.opening import open_step_lease
from marin.execution.lease.status_words import STATUS_FAILED, STATUS_RUNNING, STATUS_SUCCESS, status_path
from marin.output_files import LOCK_SUFFIX
from rigging.distributed_lock import LeaseLostError


@pytest.mark.parametrize(
    ("before", "previous", "status", "in_place"),
    [
        (None, None, STATUS_RUNNING, True),
        ("", None, STATUS_RUNNING, False),  # as a full disk left it
        ("RUNNING\n", STATUS_RUNNING, STATUS_SUCCESS, False),
        (STATUS_RUNNING, STATUS_RUNNING, STATUS_SUCCESS, True),
        (STATUS_RUNNING, STATUS_RUNNING, STATUS_FAILED, False),
        (STATUS_FAILED, STATUS_FAILED, STATUS_RUNNING, False),
        (STATUS_SUCCESS, None, STATUS_RUNNING, False),  # somebody wrote it meanwhile
        (None, STATUS_RUNNING, STATUS_SUCCESS, False),  # somebody removed it meanwhile
        ("A LONGER ONE", STATUS_RUNNING, STATUS_SUCCESS, False),
    ],
)
def test_it_is_written_whole_and_in_place_where_that_is_safe(
    tmp_path: Path, before: str | None, previous: str | None, status: str, in_place: bool
) -> None:
    path = tmp_path / "status"
    other = tmp_path / "another name"
    if before is not None:
        path.write_text(before)
        os.link(path, other)
    StatusOnDisk(str(path)).write(status, previous)
    assert path.read_text() == status
    assert StatusOnDisk(str(path)).read() == status
    if before is not None:
        assert other.read_text() == (status if in_place else before), "a reader sees the one or the other"


@pytest.mark.parametrize("previous", [None, STATUS_RUNNING, STATUS_FAILED])
def test_a_full_disk_is_told_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, previous: str | None
) -> None:
    def refuse(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path, before = tmp_path / "status", len(os.listdir("/proc/self/fd"))
    if previous is not None:
        path.write_text(previous)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        with pytest.raises(OSError, match=r"No space left on device: .*/status") as failed:
            StatusOnDisk(str(path)).write(STATUS_SUCCESS, previous)
    assert failed.value.filename == str(path)
    assert StatusOnDisk(str(path)).read() == previous, "an empty file says nothing"
    assert len(os.listdir("/proc/self/fd")) == before


def test_who_leaves_when_another_has_the_lease_says_nothing(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    lease, successor = open_step_lease(out, "a"), open_step_lease(out, "a")
    lease.begin(force_run_failed=True)
    os.unlink(status_path(out) + LOCK_SUFFIX)
    successor.begin(force_run_failed=True)
    successor.end(STATUS_SUCCESS)
    lease.leave()
    assert StatusOnDisk(status_path(out)).read() == STATUS_SUCCESS


def test_what_is_done_together_is_one_turn_among_the_users_of_the_lease(tmp_path: Path) -> None:
    out = tmp_path / "out"
    lease, other = open_step_lease(str(out), "a", is_fresh=True), open_step_lease(str(out), "b")
    began = threading.Event()
    held_beside: list[bool] = []

    def try_beside() -> None:
        began.wait(60)
        held_beside.append(other.begin(force_run_failed=True))

    beside = threading.Thread(target=try_beside)
    beside.start()
    with lease.together():
        assert lease.begin(force_run_failed=True)
        began.set()
        lease.write("info", b"1")
        assert held_beside == [], "others wait for the end of the turn"
    beside.join(60)
    assert held_beside == [False], "the lease is taken"
    with lease.together():
        lease.write("result", b"2")
        lease.end(STATUS_SUCCESS)
    files = {path.name: path.read_bytes() for path in out.iterdir()}
    assert int(files.pop(".executor_status.lock.fence")) == 1
    assert files == {".executor_status": b"SUCCESS", "info": b"1", "result": b"2"}


def test_a_lease_that_is_lost_is_found_lost_in_a_turn_of_several_calls(tmp_path: Path) -> None:
    out = tmp_path / "out"
    lease = open_step_lease(str(out), "a", is_fresh=True)
    with lease.together():
        assert lease.begin(force_run_failed=True)
    os.unlink(status_path(str(out)) + LOCK_SUFFIX)
    assert open_step_lease(str(out), "b").begin(force_run_failed=True)
    with pytest.raises(LeaseLostError), lease.together():
        lease.write("result", b"2")
    assert not (out / "result").exists()
    assert lease.lost


def test_files_that_were_there_keep_their_rights(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "info").write_bytes(b"0")
    (out / "info").chmod(0o604)
    lease = open_step_lease(str(out), "a", is_fresh=True)
    with lease.together():
        assert lease.begin(force_run_failed=True)
        lease.write("info", b"1")
    assert (out / "info").read_bytes() == b"1"
    assert (out / "info").stat().st_mode & 0o777 == 0o604
    lease.end(STATUS_SUCCESS)
