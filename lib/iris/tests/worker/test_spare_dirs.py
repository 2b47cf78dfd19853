import os
from pathlib import Path

import pytest

from iris.worker.spare_dirs import SpareDirectories, SpareFiles


@pytest.fixture
def spare(tmp_path: Path) -> SpareDirectories:
    (tmp_path / "spare").mkdir()
    return SpareDirectories(str(tmp_path / "spare"))


def test_an_empty_directory_is_used_again_under_another_name(spare: SpareDirectories, tmp_path: Path) -> None:
    spare.take(str(tmp_path / "a"))
    inode = os.stat(tmp_path / "a").st_ino
    assert os.stat(tmp_path / "a").st_mode & 0o7777 == 0o700
    assert spare.give(str(tmp_path / "a"))
    assert not (tmp_path / "a").exists()
    spare.take(str(tmp_path / "b"))
    assert os.stat(tmp_path / "b").st_ino == inode
    spare.take(str(tmp_path / "c"))
    assert os.stat(tmp_path / "c").st_ino != inode


def test_what_is_not_as_new_is_left_to_be_removed(spare: SpareDirectories, tmp_path: Path) -> None:
    filled, opened, link, file = (tmp_path / name for name in ("filled", "opened", "link", "file"))
    for directory in (filled, opened):
        spare.take(str(directory))
    (filled / "left").touch()
    opened.chmod(0o777)
    link.symlink_to(tmp_path / "spare")
    file.touch()
    for path in (filled, opened, link, file):
        assert not spare.give(str(path))
    assert spare.give(str(tmp_path / "missing")), "nothing of it is left"
    assert os.listdir(tmp_path / "spare") == []


def test_a_spare_one_that_is_gone_is_made_anew(spare: SpareDirectories, tmp_path: Path) -> None:
    spare.take(str(tmp_path / "a"))
    assert spare.give(str(tmp_path / "a"))
    for name in os.listdir(tmp_path / "spare"):
        (tmp_path / "spare" / name).rmdir()
    spare.take(str(tmp_path / "b"))
    assert (tmp_path / "b").is_dir()


def test_no_more_are_kept_than_are_of_use(spare: SpareDirectories, tmp_path: Path) -> None:
    paths = [str(tmp_path / f"d{number}") for number in range(1006)]
    for path in paths:
        spare.take(path)
    assert [spare.give(path) for path in paths] == [True] * 1000 + [False] * 6


def test_a_file_is_written_anew_with_nothing_of_the_former_content(tmp_path: Path) -> None:
    (tmp_path / "spare").mkdir()
    files = SpareFiles(str(tmp_path / "spare"))
    files.write(str(tmp_path / "a"), b"a long secret")
    inode = os.stat(tmp_path / "a").st_ino
    files.give(str(tmp_path / "a"))
    assert not (tmp_path / "a").exists()
    files.write(str(tmp_path / "b"), b"short")
    assert (tmp_path / "b").read_bytes() == b"short"
    assert os.stat(tmp_path / "b").st_ino == inode
    assert os.stat(tmp_path / "b").st_mode & 0o7777 == 0o600
    files.write(str(tmp_path / "b"), b"another")
    assert (tmp_path / "b").read_bytes() == b"another"


def test_a_file_that_has_another_name_too_is_not_used_again(tmp_path: Path) -> None:
    (tmp_path / "spare").mkdir()
    files = SpareFiles(str(tmp_path / "spare"))
    files.write(str(tmp_path / "a"), b"secret")
    os.link(tmp_path / "a", tmp_path / "kept")
    files.give(str(tmp_path / "a"))
    files.give(str(tmp_path / "a"))
    files.write(str(tmp_path / "b"), b"other")
    assert (tmp_path / "kept").read_bytes() == b"secret"
