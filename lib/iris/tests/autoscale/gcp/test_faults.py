"""Seeds of the autoscaler's fault simulation, whose cloud is the test server of Google's APIs."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from iris.autoscale.gcp.inventory import Inventory
from iris.autoscale.gcp.ownership import Owner
from iris.autoscale.model import Answer, Outcome
from iris.sim.fleet.run import run_fleet_seed
from support.iris.google_fleet import GoogleCloud, VmCloud


def broken(cloud: type[GoogleCloud], seeds: Iterable[int]) -> list[int]:
    return [seed for seed in seeds if run_fleet_seed(seed, groups=cloud.scale_groups, cloud=cloud).violations]


def test_a_seed_holds_every_promise() -> None:
    report = run_fleet_seed(0, groups=GoogleCloud.scale_groups, cloud=GoogleCloud)
    assert not report.violations
    assert report.made


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", range(0, 100, 50))
@pytest.mark.parametrize("cloud", [GoogleCloud, VmCloud])
def test_a_hundred_seeds_hold_every_promise(cloud: type[GoogleCloud], start: int) -> None:
    assert broken(cloud, range(start, start + 50)) == []


async def _done(*_: Any) -> Answer:
    return Answer(Outcome.DONE)


def _all_is_ours(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Owner, "owns", lambda *_: True)


def _nothing_is_deleted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Inventory, "delete", _done)


@pytest.mark.soak
@pytest.mark.parametrize("plant", [_all_is_ours, _nothing_is_deleted])
def test_planted_mistakes_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert broken(GoogleCloud, range(4))
