import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from iris.worker.attempts import slots as module
from iris.worker.attempts.slots import Slot, Slots
from iris.worker.isolation.layers import make_layer
from iris.worker.isolation.plan import Mount


class Bench:
    def __init__(self, place: Path, **limits: int) -> None:
        self.place = place
        self.discarded: list[str] = []
        self.slots = Slots(str(place), self.discard, **limits)

    def discard(self, path: str) -> None:
        self.discarded.append(os.path.basename(path))
        Path(path).rename(self.place.with_name(f"trash{len(self.discarded)}"))

    def old_one(self) -> Slot:
        """One that was used before, so long ago that times of change tell it apart."""
        slot = self.slots.take()
        self.slots.give(slot)
        time.sleep(0.06)
        again = self.slots.take()
        assert again is slot
        return slot


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    (tmp_path / "slots").mkdir()
    return Bench(tmp_path / "slots")


def test_untouched_directories_are_used_again_at_the_same_place_also_if_nothing_is_left_in_them(bench: Bench) -> None:
    slot = bench.slots.take()
    other = bench.slots.take()
    assert [os.stat(path).st_mode & 0o7777 for path in (slot.path, slot.working, slot.temporary)] == [0o700] * 3
    assert slot.path != other.path
    assert len(slot.temporary) - len(str(bench.place)) < 12, "sockets there have short paths"
    bench.slots.give(slot)
    assert bench.slots.take() is slot
    assert bench.discarded == []
    slot = bench.old_one()
    for path in (Path(slot.working, "gone"), Path(slot.temporary, "gone")):
        path.touch()
        path.unlink()
    bench.slots.give(slot)
    assert bench.slots.take() is slot
    Path(slot.working, "left").touch()  # at once after the last change
    bench.slots.give(slot)
    assert bench.discarded == [os.path.basename(slot.path)]


TOUCHES: dict[str, Callable[[Slot], object]] = {
    "file": lambda slot: Path(slot.working, "left").touch(),
    "temporary": lambda slot: Path(slot.temporary, "left").touch(),
    "folder": lambda slot: Path(slot.working, "a", "b").mkdir(parents=True),
    "mode": lambda slot: Path(slot.temporary).chmod(0o777),
    "closed": lambda slot: Path(slot.working).chmod(0),
    "removed": lambda slot: Path(slot.working).rmdir(),
    "replaced": lambda slot: (Path(slot.working).rmdir(), Path(slot.working).symlink_to("/")),
    "hidden": lambda slot: (
        before := os.stat(slot.working),
        Path(slot.working, "left").touch(),
        os.utime(slot.working, ns=(before.st_atime_ns, before.st_mtime_ns)),
    ),
}


@pytest.mark.parametrize("touch", TOUCHES.values(), ids=list(TOUCHES))
@pytest.mark.parametrize("at_once", [True, False], ids=["new", "old"])
def test_what_was_touched_is_never_used_again(bench: Bench, touch: Callable[[Slot], object], at_once: bool) -> None:
    # A new one is touched in the very moment in which it was made: its times may be the same.
    slot = bench.slots.take() if at_once else bench.old_one()
    touch(slot)
    bench.slots.give(slot)
    assert bench.discarded == [os.path.basename(slot.path)]
    again = bench.slots.take()
    assert again is not slot
    assert [os.listdir(again.working), os.listdir(again.temporary)] == [[], []]


def test_no_more_are_kept_than_are_of_use_and_none_touched(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    slot = bench.old_one()
    bench.slots.give(slot)
    Path(slot.temporary, "by a neighbour").touch()
    assert bench.slots.take() is not slot
    assert bench.discarded == [os.path.basename(slot.path)]
    monkeypatch.setattr(module, "_MOST_FREE", 5)
    slots = [bench.slots.take() for _ in range(8)]
    for slot in slots:
        bench.slots.give(slot)
    assert len(bench.discarded) == 4


def test_what_a_former_worker_left_goes_and_what_goes_on_stays(bench: Bench, tmp_path: Path) -> None:
    going_on, over = bench.slots.take(), bench.slots.take()
    Path(going_on.working, "half").touch()
    second = Bench(bench.place)
    adopted = Slot(going_on.path)
    second.slots.keep_only([adopted])
    assert second.discarded == [os.path.basename(over.path)]
    assert second.slots.take().path != going_on.path
    assert os.listdir(going_on.working) == ["half"]
    second.slots.give(adopted)
    assert second.discarded[1:] == [os.path.basename(going_on.path)]


@pytest.mark.parametrize(("after_ns", "place"), [(50_000_000, "working"), (50_000_000, "temporary"), (50_000_001, "")])
def test_equal_times_are_looked_into(bench: Bench, monkeypatch: pytest.MonkeyPatch, after_ns: int, place: str) -> None:
    """Changes in one granule of a file system's clock have the same time: only a look into the directory tells."""
    slot = bench.slots.take()
    bench.slots.give(slot)
    seen = {path: os.lstat(path) for path in (slot.working, slot.temporary)}
    look = os.lstat
    monkeypatch.setattr(os, "lstat", lambda path: seen[path] if path in seen else look(path))
    changed = max(status.st_ctime_ns for status in seen.values())
    monkeypatch.setattr(module.time, "time_ns", lambda: changed + after_ns)
    assert bench.slots.take() is slot
    if place:
        Path(getattr(slot, place), "left").touch()
    else:
        monkeypatch.setattr(os, "listdir", lambda path: pytest.fail("that costs"))
    bench.slots.give(slot)
    assert bench.discarded == ([os.path.basename(slot.path)] if place else [])


@pytest.mark.parametrize("name", ["getuid", "listdir"])
def test_one_of_another_or_that_is_closed_is_not_used(bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def closed(path: str) -> list[str]:
        raise PermissionError(path)

    with monkeypatch.context() as patch:
        if name == "getuid":
            patch.setattr(os, name, lambda: 12345)
        slot = bench.slots.take()
    with monkeypatch.context() as patch:
        if name == "listdir":
            patch.setattr(os, name, closed)
        bench.slots.give(slot)
    assert bench.discarded == [os.path.basename(slot.path)]


@pytest.mark.parametrize(
    ("names", "kept"),
    [(["user.mine"], False), (["security.selinux", "user.mine"], False), (["security.selinux"], True), (None, True)],
)
def test_attributes_that_a_task_has_set_are_left_things(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, names: list[str] | None, kept: bool
) -> None:
    def listed(path: str) -> list[str]:
        if names is None:
            raise OSError(95, "Operation not supported")
        return names

    monkeypatch.setattr(os, "listxattr", listed)
    slot = bench.slots.take()
    bench.slots.give(slot)
    assert (bench.discarded == []) is kept


class TestLayers:
    """Those of a bundle and an environment stay mounted for the next attempt with the same."""

    def mounts(self, slot: Slot) -> tuple[Mount, ...]:
        return (Mount("/bundle", "/bundle", f"{slot.own}/bundle"),)

    def layered(self, bench: Bench, *keys: tuple[str, str]) -> list[Slot]:
        """Slots that were used with layers, in which nothing was written."""
        slots = [bench.slots.take(key) for key in keys]
        for slot, key in zip(slots, keys, strict=True):
            bench.slots.put_on(slot, self.mounts(slot))
            make_layer(f"{slot.own}/bundle")
            bench.slots.give(slot, key)
        return slots

    def test_the_one_with_the_wanted_layers_is_taken(self, bench: Bench) -> None:
        one, two = self.layered(bench, ("b1", "e"), ("b2", "e"))
        plain = bench.slots.take()
        assert plain not in (one, two), "they are kept for attempts that gain by them"
        assert bench.slots.take(("b2", "e")) is two
        assert bench.slots.take(("b2", "e")) is not one, "one attempt at a time has it"
        assert bench.slots.take(("b1", "e")) is one
        layers = one.layers
        bench.slots.put_on(one, self.mounts(one))
        assert one.layers is layers is not None, "nothing was made anew"
        assert bench.discarded == []

    def test_of_more_than_the_guardian_keeps_mounted_the_oldest_loses_its_layers(self, tmp_path: Path) -> None:
        (tmp_path / "few").mkdir()
        bench = Bench(tmp_path / "few", most_layered=2)
        keys = [(f"b{number}", "e") for number in range(3)]
        oldest, *others = self.layered(bench, *keys)
        assert [os.path.exists(slot.own) for slot in (oldest, *others)] == [False, True, True]
        assert bench.discarded == [], "nothing was written in them"
        assert bench.slots.take() is oldest, "it serves any attempt"
        assert bench.slots.take(keys[2]) is others[1]

    def test_what_somebody_wrote_is_not_the_next_ones_and_other_mounts_begin_anew(self, bench: Bench) -> None:
        key = ("b", "e")
        (slot,) = self.layered(bench, key)
        Path(slot.own, "bundle", "by a neighbour").touch()
        assert bench.slots.take(key) is slot
        bench.slots.put_on(slot, self.mounts(slot))
        assert bench.discarded == ["own"]
        assert os.listdir(slot.own) == []
        (slot,) = self.layered(bench, key)
        assert bench.slots.take(key) is slot
        bench.slots.put_on(slot, (Mount("/other", "/other", f"{slot.own}/other"),))
        assert os.listdir(slot.own) == []
        assert slot.layers is not None
        assert slot.layers.mounts[0].target == "/other"
