"""The disk that loses what was not synced loses exactly that."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.rigging.power_loss import LossyDisk


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "disk/sub").mkdir(parents=True)
    (tmp_path / "disk/sub/old").write_bytes(b"old")
    return tmp_path / "disk"


@pytest.fixture
def disk(root: Path) -> Iterator[LossyDisk]:
    disk = LossyDisk(root)
    with disk.recording():
        yield disk
    disk.close()


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def left(disk: LossyDisk, target: Path, *, names_survive: bool = False) -> dict[str, bytes]:
    """The files after a power failure, by relative path."""
    found = disk.after_power_loss(target, names_survive=names_survive)
    return {str(path.relative_to(found)): path.read_bytes() for path in found.rglob("*") if path.is_file()}


def test_a_content_is_as_it_was_when_it_was_synced(disk: LossyDisk, root: Path, tmp_path: Path) -> None:
    (root / "new").write_bytes(b"new")
    (root / "sub/old").write_bytes(b"changed")
    assert left(disk, tmp_path / "1", names_survive=True) == {"sub/old": b"old", "new": b""}
    sync(root / "new")
    (root / "new").write_bytes(b"later")
    assert left(disk, tmp_path / "2") == {"sub/old": b"old"}, "its name was not synced"
    assert left(disk, tmp_path / "3", names_survive=True)["new"] == b"new"
    sync(root)
    assert left(disk, tmp_path / "4")["new"] == b"new"


def test_names_of_files_and_directories_are_safe_once_the_directory_was_synced(
    disk: LossyDisk, root: Path, tmp_path: Path
) -> None:
    (root / "made").mkdir()
    (root / "made/file").write_bytes(b"1")
    sync(root / "made/file")
    sync(root / "made")
    os.replace(root / "sub/old", root / "sub/moved")
    assert left(disk, tmp_path / "1") == {"sub/old": b"old"}
    sync(root / "sub")
    sync(root)
    assert left(disk, tmp_path / "2") == {"sub/moved": b"old", "made/file": b"1"}
    os.unlink(root / "sub/moved")
    assert "sub/moved" in left(disk, tmp_path / "3")
