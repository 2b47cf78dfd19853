"""What is measured of attempts reaches them; the processes and the host are played."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from iris.worker.guardian.held import HeldAttempt
from iris.worker.guardian.watch import Watch
from iris.worker.limits.plan import LimitRequest, LimitsMode
from iris.worker.limits.probe import LimitsAbility
from iris.worker.limits.processes import ProcessStat
from iris.worker.processes import ProcessSpec

TABLE = {100: ProcessStat(1, 50, 4096, 1), 101: ProcessStat(100, 5, 4096, 2)}


class Reactor:
    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def call_later(self, seconds: float, work: Callable[[], None]) -> None:
        assert seconds >= 0
        self.due.append(work)

    def turn(self) -> None:
        due, self.due = self.due, []
        for work in due:
            work()


@pytest.mark.parametrize(("told_at", "words"), [(8191, 1), (8192, 0), (0, 0)])
def test_without_groups_all_is_measured_by_proc_and_who_named_no_memory_is_told_once(told_at: int, words: int) -> None:
    reactor: Any = Reactor()
    runtime: Any = SimpleNamespace(measure=lambda process: None, owners=lambda: {100: "a"})
    keeper: Any = None
    spec = ProcessSpec("a", ("true",), {}, "/", limits=LimitRequest(memory_told=told_at))
    lines: list[str] = []

    class Attempt(HeldAttempt):
        def note_line(self, text: str) -> None:
            lines.append(text)

    attempt: Any = Attempt(spec, keeper, lambda: 0)
    attempt.process = SimpleNamespace(pid=100)
    told: list[Any] = []
    watch = Watch(
        reactor, runtime, LimitsAbility(LimitsMode.SOFT), {"a": attempt}, told.append, lambda: TABLE, usage_s=0.0
    )
    watch.began(attempt)
    for _ in range(2):
        reactor.turn()
    assert told
    assert (attempt.usage.cpu_ms, attempt.usage.memory_bytes, attempt.usage.processes) == (55, 8192, 3)
    assert len(lines) == words
    assert all("`limits: {unstated: enforce}` would have killed it" in line for line in lines)
    assert attempt.breach is None


def test_a_container_is_measured_by_proc_without_its_engines_program() -> None:
    reactor: Any = Reactor()
    runtime: Any = SimpleNamespace(measure=lambda process: None, owners=lambda: {100: "a", 101: "a"})
    keeper: Any = None
    attempt: Any = HeldAttempt(ProcessSpec("a", ("podman",), {}, "/", is_contained=True), keeper, lambda: 0)
    attempt.process = SimpleNamespace(pid=100)
    groups: Any = SimpleNamespace(controllers=frozenset({"memory", "pids", "cpu", "cpuacct"}))
    ability = LimitsAbility(LimitsMode.AUTO, groups)
    watch = Watch(reactor, runtime, ability, {"a": attempt}, lambda _: None, lambda: dict(TABLE), usage_s=0.0)
    watch.began(attempt)
    reactor.turn()
    assert (attempt.usage.cpu_ms, attempt.usage.memory_bytes, attempt.usage.processes) == (5, 4096, 2)
