"""Seeds of the autoscaler's fault simulation hold every promise, and planted mistakes break them."""

import itertools
from collections.abc import Callable, Iterable

import pytest

from iris.autoscale import runtime
from iris.autoscale.book import SliceBook
from iris.autoscale.model import SliceRecord, SliceState
from iris.autoscale.transitions import after_list, next_name
from iris.sim.fleet.run import run_fleet_seed, run_struck_at


def broken(seeds: Iterable[int]) -> list[int]:
    return [seed for seed in seeds if run_fleet_seed(seed).violations]


@pytest.mark.parametrize("seed", range(12))
def test_a_seed_holds_every_promise(seed):
    report = run_fleet_seed(seed)
    assert not report.violations
    assert report.calls > 300


@pytest.mark.parametrize(
    "every", [pytest.param(13), pytest.param(1, marks=[pytest.mark.soak, pytest.mark.timeout(600)])]
)
def test_a_controller_may_be_killed_at_each_of_its_steps(every):
    steps = itertools.count(1, every)
    reports = list(itertools.takewhile(bool, map(run_struck_at, steps)))
    assert [(report.seed, report.violations) for report in reports if report.violations] == []
    assert len(reports) * every > 150


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", range(0, 1000, 250))
def test_a_thousand_seeds_hold_every_promise(start):
    assert broken(range(start, start + 250)) == []


def _call_although_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SliceBook, "is_stored", lambda *_: True)
    save = SliceBook.save
    monkeypatch.setattr(SliceBook, "save", lambda *args: save(*args) or True)


def _ask_before_it_is_stored_as_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    save = SliceBook.save

    def forgetful(self: SliceBook, *args: object) -> bool:
        unsaved = [record for record in self.slices.values() if not self.is_stored(record.name)]
        is_all = unsaved and all(record.state is SliceState.REQUESTED for record in unsaved)
        return bool(is_all) or save(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(SliceBook, "save", forgetful)


def _use_numbers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def lowest_free(group: str, known: dict[str, SliceRecord], prefix: str = "") -> str:
        return next_name(group, [name for name, record in known.items() if not record.state.is_over], prefix)

    monkeypatch.setattr(runtime, "next_name", lowest_free)


def _forget_what_was_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    load = SliceBook.load

    def forgetful(self: SliceBook, *args: object) -> None:
        load(self, *args)  # type: ignore[arg-type]
        self.slices = {name: item for name, item in self.slices.items() if item.state is not SliceState.LEAVING}

    monkeypatch.setattr(SliceBook, "load", forgetful)


def _believe_that_a_delete_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(record: SliceRecord, found: object, now_ms: int) -> SliceRecord:
        if record.state.is_over:
            return record
        return after_list(record, None if record.state is SliceState.LEAVING else found, now_ms)  # type: ignore[arg-type]

    monkeypatch.setattr(runtime, "after_list", gone)


PLANTED: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    _call_although_not_stored,
    _ask_before_it_is_stored_as_requested,
    _use_numbers_again,
    _forget_what_was_requested,
    _believe_that_a_delete_was_done,
)


@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_mistake_is_found(plant, monkeypatch):
    plant(monkeypatch)
    assert any(broken([seed]) for seed in range(8))
