"""A kernel lock excludes other openings of its file, and ends when it is given up although a fork has a copy."""

import os
from pathlib import Path

import pytest

from rigging.process.file_lock import open_lock_file, try_lock, unlock_and_close


@pytest.mark.parametrize(
    ("held_shared", "wanted_shared", "got"),
    [(False, False, False), (False, True, False), (True, False, False), (True, True, True)],
)
def test_only_shared_locks_go_together(tmp_path: Path, held_shared: bool, wanted_shared: bool, got: bool) -> None:
    held, other = open_lock_file(tmp_path / "x"), open_lock_file(tmp_path / "x")
    assert try_lock(held, shared=held_shared)
    assert try_lock(other, shared=wanted_shared) is got
    unlock_and_close(held)
    assert try_lock(other), "it was given up"
    unlock_and_close(other)


def test_a_copy_of_the_descriptor_does_not_keep_the_lock(tmp_path: Path) -> None:
    held, other = open_lock_file(tmp_path / "x"), open_lock_file(tmp_path / "x")
    assert os.fstat(held).st_mode & 0o777 == 0o600, "its users alone"
    assert try_lock(held)
    copy = os.dup(held)
    unlock_and_close(held)
    assert try_lock(other)
    os.close(copy)
    unlock_and_close(other)
