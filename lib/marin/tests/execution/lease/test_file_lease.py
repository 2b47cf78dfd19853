"""A status file on this machine: written in place where no part of it can be taken for a status."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from marin.execution.lease.file_lease import StatusOnDisk
from marin.execution.lease.opening import open_step_lease
from marin.execution.lease.status_words import LOCK_SUFFIX, STATUS_FAILED, STATUS_RUNNING, STATUS_SUCCESS, status_path


@pytest.mark.parametrize(
    ("before", "previous", "status", "in_place"),
    [
        (None, None, STATUS_RUNNING, True),
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
    if before is not None:
        path.write_text(before)
    other = tmp_path / "another name"
    if before is not None:
        os.link(path, other)
    StatusOnDisk(str(path)).write(status, previous)
    assert path.read_text() == status
    assert StatusOnDisk(str(path)).read() == status
    if before is not None:
        assert other.read_text() == (status if in_place else before), "a reader sees the one or the other"


def test_a_disk_without_room_is_told_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "status"
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        with pytest.raises(OSError, match="No space left") as failed:
            StatusOnDisk(str(path)).write(STATUS_RUNNING, None)
    assert failed.value.filename == str(path)
    assert StatusOnDisk(str(path)).read() is None, "an empty file says nothing"


def test_a_directory_that_was_removed_under_a_step_is_made_again_with_all_that_it_said(tmp_path: Path) -> None:
    out = tmp_path / "out"
    lease = open_step_lease(str(out), "a")
    lease.begin(force_run_failed=True)
    lease.write("info", b"1")
    shutil.rmtree(out)
    lease.write("more", b"2")
    assert (out / "more").read_bytes() == b"2"
    lease.end(STATUS_SUCCESS)
    assert not lease.lost


def test_who_leaves_when_another_has_the_lease_says_nothing(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    lease, successor = open_step_lease(out, "a"), open_step_lease(out, "a")
    lease.begin(force_run_failed=True)
    os.unlink(status_path(out) + LOCK_SUFFIX)
    successor.begin(force_run_failed=True)
    successor.end(STATUS_SUCCESS)
    lease.leave()
    assert StatusOnDisk(status_path(out)).read() == STATUS_SUCCESS
