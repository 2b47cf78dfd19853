"""Small files between local disks, a directory at a time: as safe as one by one."""

import fcntl
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from rigging.copying.charges import BudgetReservation
from rigging.copying.local import batch
from rigging.copying.local.batch import copy_small_files, no_batch_in
from rigging.copying.request import Settings
from rigging.filesystem import filesystem, mirror_plan, mirror_prefetch
from rigging.filesystem.budget import TransferBudget

FILES = {f"d/{number % 2}/{number}": os.urandom(50 + number) for number in range(20)}


@pytest.fixture
def regions(make_regions: Any) -> Any:
    regions = make_regions("local", "local")
    for path, data in FILES.items():
        regions.put(1, path, data)
    return regions


def copy_batch(known: set[str] | None = None) -> tuple[list[str], list[str]]:
    """Copy what is missing of `d`; returns what was done and what was left to be claimed one by one."""
    plan = mirror_plan("d")
    done: list[str] = []
    with BudgetReservation.of(plan.files, plan.destination) as reservation:
        rest = copy_small_files(
            plan.files, plan.destination, reservation, lambda wanted, moved: done.append(wanted.path), known or set()
        )
    return done, [wanted.path for wanted in rest]


def test_a_directory_is_copied_whole_and_modes_follow_the_umask(regions: Any, budget: TransferBudget) -> None:
    before = os.umask(0o027)
    try:
        done, rest = copy_batch()
    finally:
        os.umask(before)
    assert (sorted(done), rest) == (sorted(FILES), [])
    assert {path: regions.has(0, path) for path in regions.files(0)} == FILES
    assert budget.bytes_used == sum(map(len, FILES.values()))
    assert sorted(os.listdir(f"{regions.prefixes[0]}/d/0")) == sorted(path[4:] for path in FILES if path[2] == "0")
    assert os.stat(f"{regions.prefixes[0]}/d/0/0").st_mode & 0o777 == 0o640


def test_what_a_killed_one_left_is_overwritten_and_never_seen(regions: Any):
    left = Path(regions.prefixes[0], "d/0/.marin-tmp-mirror-batch")
    left.parent.mkdir(parents=True)
    left.write_bytes(os.urandom(5000))
    assert "d/0/.marin-tmp-mirror-batch" not in regions.fs.find("d")
    mirror_prefetch("d")
    assert {path: regions.has(0, path) for path in regions.files(0)} == FILES


def test_a_file_that_changed_or_went_is_left_to_its_next_copier(regions: Any, budget: TransferBudget):
    plan = mirror_plan("d")
    there = Path(regions.prefixes[1])
    (there / "d/0/0").write_bytes(b"longer than it was before, by far, as can be seen at a glance and from afar")
    (there / "d/0/2").write_bytes(b"s")
    os.utime(there / "d/0/4", (1, 1))
    (there / "d/0/6").unlink()
    with BudgetReservation.of(plan.files, plan.destination) as reservation:
        rest = copy_small_files(plan.files, plan.destination, reservation, None, set())
    assert [wanted.path for wanted in rest] == ["d/0/0", "d/0/2", "d/0/4", "d/0/6"]
    assert regions.files(0) == sorted(FILES.keys() - {wanted.path for wanted in rest})
    assert budget.bytes_used == sum(len(FILES[path]) for path in regions.files(0))


def test_directories_made_for_nothing_go_again_and_are_not_taken_for_there(regions: Any):
    plan = mirror_plan("d")
    for path in FILES:
        Path(regions.prefixes[1], path).unlink()
    known: set[str] = set()
    with BudgetReservation.of(plan.files, plan.destination) as reservation:
        rest = copy_small_files(plan.files, plan.destination, reservation, None, known)
    assert sorted(wanted.path for wanted in rest) == sorted(FILES)
    assert os.listdir(regions.prefixes[0]) == []
    assert known == set()


@pytest.mark.parametrize("cannot", ["open", "lock"])
def test_a_directory_that_cannot_be_opened_or_locked_is_copied_into_one_by_one(
    regions: Any, monkeypatch: pytest.MonkeyPatch, cannot: str
) -> None:
    opened, flock = os.open, fcntl.flock

    def no_directories(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & os.O_DIRECTORY and str(path).startswith(regions.prefixes[0]):
            raise PermissionError(13, "Permission denied")
        return opened(path, flags, *rest, **options)

    def only_files(descriptor: int, how: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(9, "Bad file descriptor")
        flock(descriptor, how)

    if cannot == "open":
        monkeypatch.setattr(os, "open", no_directories)
    else:
        monkeypatch.setattr(fcntl, "flock", only_files)
    assert copy_batch()[0] == []
    mirror_prefetch("d")
    assert {path: regions.has(0, path) for path in regions.files(0)} == FILES


@pytest.mark.parametrize("written", ["before the batch", "at the last moment"])
def test_what_a_user_writes_is_kept(
    regions: Any, written: str, budget: TransferBudget, monkeypatch: pytest.MonkeyPatch
):
    mine = Path(regions.prefixes[0], "d/0/8")
    plan = mirror_plan("d")
    mine.parent.mkdir(parents=True)
    if written == "before the batch":
        mine.write_bytes(b"mine")
    else:
        rename = batch.rename_at

        def rename_later(directory: int, name: str, new_name: str) -> bool:
            if new_name == "8":
                mine.write_bytes(b"mine")
            return rename(directory, name, new_name)

        monkeypatch.setattr(batch, "rename_at", rename_later)
    with BudgetReservation.of(plan.files, plan.destination) as reservation:
        copy_small_files(plan.files, plan.destination, reservation, None, set())
    assert mine.read_bytes() == b"mine"
    assert budget.bytes_used == sum(map(len, FILES.values())) - len(FILES["d/0/8"])
    assert not [name for name in os.listdir(mine.parent) if name.startswith(".")]


def test_what_cannot_be_written_is_told_and_leaves_nothing(regions: Any, monkeypatch: pytest.MonkeyPatch, budget: Any):
    def full(descriptor: int, data: Any, offset: int = 0) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left"):
        mirror_prefetch("d")
    assert os.listdir(regions.prefixes[0]) == []
    assert budget.bytes_used == 0


def test_a_directory_in_which_one_file_is_being_copied_is_not_batched(regions: Any):
    directory = Path(regions.prefixes[0], "d/0")
    directory.mkdir(parents=True)
    with no_batch_in(str(directory), 60):
        done, rest = copy_batch()
    assert sorted(path[:3] for path in {*done}) == ["d/1"] * 10
    assert sorted(path[:3] for path in {*rest}) == ["d/0"] * 10


def test_a_copy_of_one_file_waits_for_the_batch_unless_it_stands_still(regions: Any) -> None:
    directory = Path(regions.prefixes[0], "d/0")
    directory.mkdir(parents=True)
    descriptor = os.open(directory, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    reading = threading.Thread(target=lambda: regions.fs.cat_file("d/0/0"))
    reading.start()
    reading.join(0.05)
    assert reading.is_alive()
    assert regions.files(0) == []
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    reading.join(10)
    assert regions.files(0) == ["d/0/0"]
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert filesystem("mirror", heartbeat_timeout=0.01).cat_file("d/0/2") == FILES["d/0/2"]
    mirror_prefetch("d", settings=Settings(heartbeat_timeout=0.01))
    os.close(descriptor)
    assert {path: regions.has(0, path) for path in regions.files(0)} == FILES


def test_a_lock_that_fails_for_another_reason_is_no_lock(regions: Any, monkeypatch: pytest.MonkeyPatch):
    directory = f"{regions.prefixes[0]}/d"
    os.makedirs(directory, exist_ok=True)
    before = len(os.listdir("/proc/self/fd"))

    def fail(descriptor: int, how: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(OSError, match="Input/output"), no_batch_in(directory, 60):
        pass
    assert len(os.listdir("/proc/self/fd")) == before
