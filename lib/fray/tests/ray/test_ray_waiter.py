"""Which ends the waiter learns of, with a Ray that only says which tasks have ended."""

import threading
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import ray

from fray.backends import ray_waiter
from fray.backends.ray_failures import AttemptEnd, End
from fray.backends.ray_waiter import Waiter
from fray.testing.signals import eventually


class Tasks:
    """Stands for Ray: tasks are numbers, and each ends when it is put into `ended`."""

    def __init__(self) -> None:
        self.ended: set[int] = set()
        self.looked_at: list[int] = []

    def wait(self, refs: Sequence[int], *, num_returns: int, timeout: float) -> tuple[list[int], list[int]]:
        self.looked_at.append(len(refs))
        ready = [ref for ref in refs if ref in self.ended]
        if not ready and timeout:
            threading.Event().wait(0.001)
        return ready[:num_returns], [ref for ref in refs if ref not in ready[:num_returns]]

    def get(self, refs: Sequence[int]) -> list[None]:
        assert self.ended.issuperset(refs), "asked before the end"
        return [None for _ in refs]


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Tasks:
    made = Tasks()
    stand_in = SimpleNamespace(wait=made.wait, get=made.get, exceptions=ray.exceptions)
    monkeypatch.setattr(ray_waiter, "ray", stand_in)
    return made


def test_of_many_each_end_is_told_once_in_whatever_order_they_come(tasks: Tasks) -> None:
    told: list[int] = []

    def settle(ref: int, end: AttemptEnd) -> None:
        assert end.end is End.SUCCEEDED
        told.append(ref)

    waiter = Waiter()
    for number in range(1000):
        waiter.add(number, settle)
    # Far behind the first, which go on for longer than anybody looks at them alone.
    tasks.ended.update(range(600, 700))
    eventually(lambda: len(told) == 100, "the ends in the middle are told", instead=lambda: len(told))
    tasks.ended.update(range(1000))
    eventually(lambda: len(told) == 1000, "all are told", instead=lambda: len(told))
    waiter.close()
    assert sorted(told) == list(range(1000))


def test_most_looks_are_at_the_first_alone(tasks: Tasks) -> None:
    waiter = Waiter()
    told: list[int] = []
    for number in range(1000):
        waiter.add(number, lambda ref, _: told.append(ref))
    eventually(lambda: len(tasks.looked_at) > 12, "it looks")
    full = [size for size in tasks.looked_at[:12] if size > 500]
    assert 2 <= len(full) <= 4, "each look at a thousand takes milliseconds of whoever submits"
    tasks.ended.update(range(1000))
    eventually(lambda: len(told) == 1000, "all are told")
    waiter.close()
