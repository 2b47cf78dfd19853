"""When new jobs, logs and blobs stop, and when they go on: with a disk of 1000 MB that the test fills."""

import os
from pathlib import Path

import pytest

from iris.controller.storage.disk_space import RESERVE_NAME, DiskSpace, FreeSpace, is_low, reserve_size, room_of
from rigging.errors import BudgetExceeded

MB = 2**20
RESERVE = MB  # small, as it is really written


class Disk:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.used = 0

    def look(self, path: Path) -> FreeSpace:
        file = self.root / RESERVE_NAME
        reserved = file.stat().st_size if file.exists() else 0
        return FreeSpace(max(10 * MB - self.used - reserved, 0), 10 * MB)

    def space(self) -> DiskSpace:
        self.now = 0.0
        space = DiskSpace(self.root, RESERVE, self.look, lambda: self.now)
        space.tend()
        return space


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_logs_stop_before_jobs_and_jobs_before_the_reserve(disk: Disk) -> None:
    space = disk.space()
    assert (disk.root / RESERVE_NAME).stat().st_size == RESERVE
    disk.used = 7 * MB
    assert space.take(MB // 4)
    disk.used = 7 * MB + MB * 6 // 10
    disk.now += 1
    assert not space.take(1)
    space.check("new jobs")
    disk.used = 8 * MB + 1
    with pytest.raises(BudgetExceeded, match=r"new jobs cannot be taken now: .* nearly full \(1024 KiB free"):
        space.check("new jobs")
    assert (disk.root / RESERVE_NAME).exists()
    # A little more room does not let them in and out again and again.
    disk.used = 8 * MB - MB // 8
    assert space.low
    disk.used = 8 * MB - MB // 4
    assert not space.low


def test_the_reserve_is_given_up_for_the_database_and_made_again(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    space = disk.space()
    disk.used = 9 * MB
    assert space.release()
    assert not (disk.root / RESERVE_NAME).exists()
    assert "the controller's disk is nearly full" in caplog.text, "told at once, not when somebody asks"
    assert space.low
    assert not space.release(), "there is nothing more to give"
    # What logs and blobs may fill leaves room for it: nobody has to remove them.
    disk.used = 8 * MB - MB // 2
    assert not space.low
    assert (disk.root / RESERVE_NAME).stat().st_size == RESERVE


def test_a_start_with_little_room_gives_the_reserve_up_first(disk: Disk) -> None:
    disk.space()
    asked: list[int] = []
    disk.used = 9 * MB - 10
    fresh = DiskSpace(disk.root, RESERVE, disk.look)
    fresh.give_way(asked.append)
    assert not (disk.root / RESERVE_NAME).exists()
    assert asked == []
    disk.used = 10 * MB
    (disk.root / "controller.log.old").write_bytes(b"x")
    fresh.give_way(asked.append)
    assert asked == [MB]
    assert not (disk.root / "controller.log.old").exists()


def test_a_note_costs_the_reserve_a_little_and_never_more_than_a_half(disk: Disk) -> None:
    space = disk.space()
    disk.used = 9 * MB
    while space.spare():
        pass
    assert MB // 2 <= (disk.root / RESERVE_NAME).stat().st_size < MB // 2 + 16 * 1024


def test_without_a_reserve_nothing_is_refused(disk: Disk) -> None:
    space = DiskSpace(disk.root, 0, disk.look)
    space.tend()
    disk.used = 10 * MB
    space.check("new jobs")
    assert space.take(10**9)
    assert not (disk.root / RESERVE_NAME).exists()
    sizes = [reserve_size(wanted, total) for wanted, total in ((64, 640), (64, 639), (0, 639))]
    assert sizes == [64, 63, 0], "that of a small disk is a tenth"


@pytest.mark.parametrize(
    ("free", "held", "was_low", "low"),
    [
        (99, True, False, True),
        (100, True, False, False),
        (124, True, True, True),
        (125, True, True, False),
        (1000, False, False, True),
    ],
)
def test_when_room_is_low(free: int, held: bool, was_low: bool, low: bool) -> None:
    assert is_low(free, 100, held, was_low) is low


def test_what_is_written_is_counted_between_two_looks(disk: Disk) -> None:
    disk.space()
    looks: list[float] = []

    def counted(path: Path) -> FreeSpace:
        looks.append(disk.now)
        return disk.look(path)

    space = DiskSpace(disk.root, RESERVE, counted, lambda: disk.now)
    disk.used = 7 * MB
    space.tend()
    looks.clear()
    assert space.take(MB // 4)
    assert space.take(MB // 4)
    assert looks == [], "a quarter of a second is not over"
    disk.now = 0.25
    assert space.take(1)
    disk.now = 0.3
    disk.used += MB // 2 - 1
    assert not space.take(MB // 2), "it looks again before it refuses"
    assert looks == [0.25, 0.3]


def test_without_a_reserve_file_logs_leave_room_for_it(disk: Disk) -> None:
    space = disk.space()
    disk.used = 9 * MB
    space.release()
    disk.used = 10 * MB - (2 * MB + MB // 4) + 1
    disk.now += 1
    assert not space.take(1), "one byte short of what makes the reserve again"
    assert not (disk.root / RESERVE_NAME).exists()
    disk.used -= 1
    space.tend()
    assert (disk.root / RESERVE_NAME).stat().st_size == RESERVE


def test_where_there_is_no_room_or_no_directory_it_goes_on_without_the_reserve(disk: Disk, tmp_path: Path) -> None:
    disk.used = 9 * MB
    space = disk.space()
    assert not (disk.root / RESERVE_NAME).exists()
    assert space.low
    assert not space.spare(), "there is nothing to take it from"
    absent = DiskSpace(tmp_path / "no", RESERVE, lambda path: FreeSpace(0, 10 * MB))
    absent.give_way(lambda count: pytest.fail("asked"))
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(("free", "asked"), [(MB, []), (MB // 2, []), (MB // 2 - 1, [MB // 2 + 1])])
def test_old_history_goes_last_and_only_where_much_is_missing(tmp_path: Path, free: int, asked: list[int]) -> None:
    (tmp_path / "blobs").mkdir()
    leftovers = [tmp_path / "blobs/upload.x", tmp_path / "iris.db.restoring", tmp_path / "iris.db.snapshot"]
    for path in leftovers:
        path.write_bytes(b"x")
    found: list[int] = []
    DiskSpace(tmp_path, RESERVE, lambda path: FreeSpace(free, 10 * MB)).give_way(found.append)
    assert found == asked
    assert [path.exists() for path in leftovers] == [free >= MB] * 3


def test_why_it_is_refused_is_said_with_figures(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    space = disk.space()
    assert space.low == ""
    disk.used = 9 * MB - MB // 2
    said = "the controller's disk is nearly full (512 KiB free in "
    assert space.low.startswith(said)
    assert "1 MiB are kept for the database" in space.low
    assert sum(said in record.message for record in caplog.records) == 1, "told once, not at every look"
    disk.used = 0
    assert space.low == ""
    assert "has room again" in caplog.records[-1].message
    assert "9 MiB free" in caplog.records[-1].message


def test_what_the_file_system_has(tmp_path: Path) -> None:
    room = room_of(tmp_path)
    assert 0 <= room.free <= room.total
    assert room.total == os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
