"""The simulation can fail: each planted mistake is caught by the seeds named in `PLANTED`."""

import functools

import pytest

from support.iris import planted_faults as planted


@functools.cache
def fails_without_mistakes(seed: int) -> bool:
    """True if a seed fails as it is; several mistakes have the same first seed."""
    return bool(planted.caught_by([seed]))


@pytest.mark.process
@pytest.mark.parametrize("name", planted.PLANTED)
def test_a_planted_mistake_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = planted.PLANTED[name].seeds[0]
    assert not fails_without_mistakes(first), "the seed fails even without the mistake"
    planted.PLANTED[name].plant(monkeypatch)
    assert planted.caught_by([first]) == [first]


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", planted.PLANTED)
def test_every_seed_of_the_table_catches_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.PLANTED[name].plant(monkeypatch)
    assert planted.caught_by(planted.PLANTED[name].seeds) == list(planted.PLANTED[name].seeds)
