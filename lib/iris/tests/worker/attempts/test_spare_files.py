"""Small files are used again, where nobody but the worker can have had a hand on them."""

import os
from pathlib import Path

import pytest

from iris.worker.attempts.spare_files import SpareFiles


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


class TestWhatIsUsedAgain:
    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        (tmp_path / "spare").mkdir()
        return tmp_path

    def spare(self, place: Path) -> list[str]:
        return sorted(os.listdir(place / "spare"))

    def test_a_file_that_its_user_opened_to_others_is_removed(self, place: Path) -> None:
        files = SpareFiles(str(place / "spare"))
        files.write(str(place / "a"), b"secret")
        os.chmod(place / "a", 0o644)
        files.give(str(place / "a"))
        assert (self.spare(place), (place / "a").exists()) == ([], False)

    def test_one_of_another_owner_is_removed(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "getuid", lambda: 12345)
        files = SpareFiles(str(place / "spare"))
        files.write(str(place / "a"), b"secret")
        files.give(str(place / "a"))
        assert (self.spare(place), (place / "a").exists()) == ([], False)

    def test_a_link_that_came_in_its_place_is_removed_and_not_what_it_names(self, place: Path) -> None:
        files = SpareFiles(str(place / "spare"))
        (place / "theirs").touch(0o600)
        (place / "a").symlink_to("theirs")
        files.give(str(place / "a"))
        assert (self.spare(place), (place / "a").is_symlink(), (place / "theirs").exists()) == ([], False, True)

    def test_nothing_is_written_through_a_link_that_came_in_the_place_of_a_spare_one(self, place: Path) -> None:
        files = SpareFiles(str(place / "spare"))
        files.write(str(place / "a"), b"a")
        files.give(str(place / "a"))
        (kept,) = (place / "spare").iterdir()
        kept.unlink()
        (place / "theirs").write_text("theirs")
        kept.symlink_to(place / "theirs")
        with pytest.raises(OSError, match="symbolic links"):
            files.write(str(place / "b"), b"token")
        assert (place / "theirs").read_text() == "theirs"

    def test_where_somebody_removed_them_new_ones_are_made(self, place: Path) -> None:
        files = SpareFiles(str(place / "spare"))
        for name in "ab":
            files.write(str(place / name), b"x")
        for name in "ab":
            files.give(str(place / name))
        for kept in (place / "spare").iterdir():
            kept.unlink()
        opened: list[str] = []
        for name in "cd":
            files.write(str(place / name), name.encode())
            opened.append((place / name).read_text())
        assert opened == ["c", "d"]

    def test_no_more_are_kept_than_are_of_use(self, place: Path) -> None:
        files = SpareFiles(str(place / "spare"))
        for number in range(1002):
            files.write(str(place / str(number)), b"")
        for number in range(1002):
            files.give(str(place / str(number)))
        assert len(self.spare(place)) == 1000
        assert sorted(os.listdir(place)) == ["spare"]

    def test_what_a_start_wrote_is_closed(self, place: Path) -> None:
        files = SpareFiles(str(place / "spare"))
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            files.write(str(place / "a"), b"x")
        assert len(os.listdir("/proc/self/fd")) == before
