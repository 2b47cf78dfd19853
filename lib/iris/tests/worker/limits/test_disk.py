"""How much the directories of an attempt take."""

import os
from pathlib import Path
from typing import BinaryIO, cast

from iris.worker.limits.disk import DiskScan, disk_room


def whole(*places: Path, seen_as: tuple[str, ...] = (), pids: tuple[int, ...] = ()) -> int:
    scan = DiskScan([str(place) for place in places], seen_as, lambda: pids)
    while not scan.go_on(2):
        pass
    return scan.total_bytes


OWN = (os.getpid(),)


def test_what_is_written_counts_once_however_it_is_linked_and_a_hole_takes_nothing(tmp_path: Path) -> None:
    before = whole(tmp_path)
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(os.urandom(1 << 20))
    os.link(tmp_path / "a" / "b" / "file", tmp_path / "a" / "again")
    (tmp_path / "link").symlink_to("/usr")
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 1 << 30)
    assert 1 << 20 <= whole(tmp_path, tmp_path / "none") - before < (1 << 20) + 64 * 1024
    assert DiskScan([]).go_on(5)


class TestDeletedFiles:
    """They take their room until the last process has closed them."""

    def opened(self, place: Path) -> BinaryIO:
        """A file with a megabyte."""
        file = cast(BinaryIO, place.open("wb", buffering=0))
        file.write(os.urandom(1 << 20))
        return file

    def test_one_that_is_open_counts_once(self, tmp_path: Path) -> None:
        before = whole(tmp_path, pids=OWN)
        with self.opened(tmp_path / "file"), open(tmp_path / "file", "rb"):
            (tmp_path / "file").unlink()
            assert 1 << 20 <= whole(tmp_path, pids=OWN) - before < (1 << 20) + 64 * 1024
            assert whole(tmp_path) == before, "nobody of the attempt has it open"
            assert whole(tmp_path, pids=(2**22 + 1,)) == before, "a process that is gone"
        assert whole(tmp_path, pids=OWN) == before

    def test_one_that_has_another_name_yet_counts_by_that(self, tmp_path: Path) -> None:
        with self.opened(tmp_path / "file"):
            before = whole(tmp_path, pids=OWN)
            os.link(tmp_path / "file", tmp_path / "other")
            (tmp_path / "file").unlink()
            assert whole(tmp_path, pids=OWN) == before

    def test_one_of_elsewhere_does_not_unless_that_is_how_a_place_is_seen(self, tmp_path: Path) -> None:
        place, elsewhere = tmp_path / "place", tmp_path / "place-not"
        place.mkdir()
        elsewhere.mkdir()
        with self.opened(elsewhere / "file"):
            (elsewhere / "file").unlink()
            assert whole(place, pids=OWN) == whole(place)
            assert whole(place, seen_as=(str(elsewhere),), pids=OWN) >= 1 << 20


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / str(number)).write_bytes(b"x" * 4096)
    scan = DiskScan([str(tmp_path)])
    assert not scan.go_on(4)
    assert scan.entries == 4
    assert not scan.go_on(6)
    assert scan.go_on(1)
    assert scan.total_bytes >= 10 * 4096
    free, size = disk_room(str(tmp_path))
    assert 0 < free <= size
