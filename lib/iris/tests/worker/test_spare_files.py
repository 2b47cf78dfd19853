import os
from pathlib import Path

from iris.worker.spare_files import SpareFiles


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
