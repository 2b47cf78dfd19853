"""The simulation can fail: each planted mistake is caught by the seeds named in `PLANTED`."""

import functools
from collections.abc import Callable

import pytest

from iris.sim.scenario import Scenario
from support.iris import planted_faults as planted


@functools.cache
def fails_without_mistakes(seed: int, make: Callable[[int], Scenario]) -> bool:
    """True if a seed fails as it is; several mistakes have the same first seed."""
    return bool(planted.caught_by([seed], make))


@pytest.mark.process
@pytest.mark.parametrize("name", planted.PLANTED)
def test_a_planted_mistake_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake = planted.PLANTED[name]
    first = mistake.seeds[0]
    assert not fails_without_mistakes(first, mistake.make), "the seed fails even without the mistake"
    mistake.plant(monkeypatch)
    assert planted.caught_by([first], mistake.make) == [first]


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", planted.PLANTED)
def test_every_seed_of_the_table_catches_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake = planted.PLANTED[name]
    mistake.plant(monkeypatch)
    assert planted.caught_by(mistake.seeds, mistake.make) == list(mistake.seeds)
