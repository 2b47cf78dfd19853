"""When new jobs, logs and blobs stop, and when they go on: with a disk of 1000 MB that the test fills."""

from pathlib import Path

import pytest

from iris.controller.disk_space import RESERVE_NAME, DiskSpace, Room
from rigging.errors import BudgetExceeded

MB = 2**20
RESERVE = MB  # small, as it is really written


class Disk:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.used = 0

    def look(self, path: Path) -> Room:
        file = self.root / RESERVE_NAME
        reserved = file.stat().st_size if file.exists() else 0
        return Room(max(10 * MB - self.used - reserved, 0), 10 * MB)

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


def test_the_reserve_is_given_up_for_the_database_and_made_again(disk: Disk) -> None:
    space = disk.space()
    disk.used = 9 * MB
    assert space.release()
    assert not (disk.root / RESERVE_NAME).exists()
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
