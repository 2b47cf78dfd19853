"""The simulation can fail: each planted mistake is caught by the seeds named in `PLANTED`."""

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _load() -> ModuleType:
    """The table of plants, which is no test module; loaded by path, as tests import nothing from each other."""
    name = "iris_sim_planted"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("planted.py"))
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


planted = _load()


@functools.cache
def fails_without_mistakes(seed: int) -> bool:
    """True if a seed fails as it is; several mistakes have the same first seed."""
    return bool(planted.caught_by([seed]))


@pytest.mark.parametrize("name", planted.PLANTED)
def test_a_planted_mistake_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = planted.PLANTED[name].seeds[0]
    assert not fails_without_mistakes(first), "the seed fails even without the mistake"
    planted.PLANTED[name].plant(monkeypatch)
    assert planted.caught_by([first]) == [first]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", planted.PLANTED)
def test_every_seed_of_the_table_catches_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.PLANTED[name].plant(monkeypatch)
    assert planted.caught_by(planted.PLANTED[name].seeds) == list(planted.PLANTED[name].seeds)
