"""Which ends the waiter learns of, with a Ray that only says which tasks have ended."""

import signal
import threading
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import ray

from fray.backends.common.job_life import AttemptEnd, AttemptStatus
from fray.backends.ray.jobs import completion
from fray.backends.ray.jobs.completion import CompletionWatcher
from fray.testing.signals import eventually


class Tasks:
    """Stands for Ray: tasks are numbers, and each ends when it is put into `ended`."""

    def __init__(self) -> None:
        self.ended: set[int] = set()
        self.looked_at: list[int] = []
        self.connected = True

    def is_initialized(self) -> bool:
        return self.connected

    def wait(self, refs: Sequence[int], *, num_returns: int, timeout: float) -> tuple[list[int], list[int]]:
        assert self.connected, "this would connect anew"
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
    stand_in = SimpleNamespace(
        wait=lambda *args, **kwargs: made.wait(*args, **kwargs),
        get=lambda refs: made.get(refs),
        is_initialized=made.is_initialized,
        exceptions=ray.exceptions,
    )
    monkeypatch.setattr(completion, "ray", stand_in)
    return made


def test_of_many_each_end_is_told_once_in_whatever_order_they_come(tasks: Tasks) -> None:
    told: list[int] = []

    def settle(ref: int, end: AttemptEnd) -> None:
        assert end.status is AttemptStatus.SUCCEEDED
        told.append(ref)

    waiter = CompletionWatcher()
    for number in range(1000):
        waiter.add(number, settle)
    eventually(lambda: len(tasks.looked_at) > 12, "it looks")
    full = [size for size in tasks.looked_at[:12] if size > 500]
    assert len(full) <= 4, "each look at a thousand takes milliseconds of whoever submits"
    # Far behind the first, which go on for longer than anybody looks at them alone.
    tasks.ended.update(range(600, 700))
    eventually(lambda: len(told) == 100, "the ends in the middle are told", instead=lambda: len(told))
    tasks.ended.update(range(1000))
    eventually(lambda: len(told) == 1000, "all are told", instead=lambda: len(told))
    waiter.close()
    assert sorted(told) == list(range(1000))
    assert not [thread for thread in threading.enumerate() if thread.name == "fray-ray-completion"]


def interrupt_main_thread() -> None:
    """Do as Ctrl-C does."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


class SeenByOneOnly(Tasks):
    """The ends are seen by whoever waits for them in particular, and by the waiter's own thread from `all_see` on."""

    def __init__(self) -> None:
        super().__init__()
        self.all_see = False

    def wait(self, refs: Sequence[int], *, num_returns: int, timeout: float) -> tuple[list[int], list[int]]:
        if not self.all_see and threading.current_thread() is not threading.main_thread():
            threading.Event().wait(0.001)
            return [], list(refs)
        return super().wait(refs, num_returns=len(refs), timeout=timeout)


@pytest.mark.parametrize("moment", ["asking for the ends", "telling them"])
def test_a_ctrl_c_while_ends_are_told_loses_none_of_them(monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    tasks = SeenByOneOnly()
    interrupts = iter([None])
    told: list[int] = []

    def interrupt_once() -> None:
        for _ in interrupts:
            interrupt_main_thread()

    def get(refs: Sequence[int]) -> list[None]:
        if moment == "asking for the ends":
            interrupt_once()
        return [None for _ in refs]

    def settle(ref: int, _: AttemptEnd) -> None:
        if moment == "telling them":
            interrupt_once()
        told.append(ref)

    stand_in = SimpleNamespace(wait=tasks.wait, get=get, is_initialized=tasks.is_initialized, exceptions=ray.exceptions)
    monkeypatch.setattr(completion, "ray", stand_in)
    waiter = CompletionWatcher()
    for number in range(3):
        waiter.add(number, settle)
    tasks.ended.update(range(3))
    with pytest.raises(KeyboardInterrupt):
        waiter.block([0, 1, 2], timeout=60)
    tasks.all_see = True
    eventually(lambda: len(told) == 3, "all are told", instead=lambda: told)
    waiter.close()
    assert sorted(told) == [0, 1, 2]


def test_an_end_that_cannot_be_settled_takes_no_others_with_it(tasks: Tasks) -> None:
    told: list[int] = []

    def settle(ref: int, end: AttemptEnd) -> None:
        assert end.status is AttemptStatus.SUCCEEDED
        told.append(ref)

    def refuse(ref: int, _: AttemptEnd) -> None:
        raise SystemExit(ref)

    waiter = CompletionWatcher()
    waiter.add(0, refuse)
    for number in range(1, 4):
        waiter.add(number, settle)
    tasks.ended.update(range(3))
    eventually(lambda: len(told) == 2, "those that ended with it are told", instead=lambda: told)
    tasks.ended.add(3)
    eventually(lambda: len(told) == 3, "the thread lives", instead=lambda: told)
    waiter.close()


def test_without_a_connection_tasks_are_given_up(tasks: Tasks) -> None:
    ends: list[AttemptEnd] = []
    waiter = CompletionWatcher()
    tasks.connected = False
    for number in range(20):
        waiter.add(number, lambda _, end: ends.append(end))
    eventually(lambda: len(ends) == 20, "nobody waits for them", instead=lambda: ends)
    waiter.add(20, lambda _, end: ends.append(end))
    waiter.block([20], timeout=60)
    eventually(lambda: len(ends) == 21, "nor for the last", instead=lambda: ends)
    waiter.close()
    assert {end.status for end in ends} == {AttemptStatus.STOPPED}
    assert "the connection to Ray was lost" in ends[0].reason
