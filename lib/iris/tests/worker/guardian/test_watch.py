"""What is measured of attempts reaches them; the processes and the host are played."""

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from iris.worker.guardian.held import HeldAttempt
from iris.worker.guardian.watch import Watch
from iris.worker.limits.network import NetworkCounts, SocketTraffic, Traffic
from iris.worker.limits.plan import LimitsMode
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


def watched(inodes: Callable[[int], Iterable[int]], sockets: Callable[[], list[SocketTraffic]]) -> tuple[Any, Reactor]:
    """A running attempt, and the reactor whose turns measure it."""
    reactor: Any = Reactor()
    runtime: Any = SimpleNamespace(measure=lambda process: None, owners=lambda: {100: "a"})
    keeper: Any = None
    attempt: Any = HeldAttempt(ProcessSpec("a", ("true",), {}, "/"), keeper, lambda: 0)
    attempt.process = SimpleNamespace(pid=100)
    network = NetworkCounts(sockets, inodes, network=lambda _: 0, spent=lambda: 0.0)
    ability = LimitsAbility(LimitsMode.SOFT)
    told: list[Any] = []
    watch = Watch(reactor, runtime, ability, {"a": attempt}, told.append, lambda: TABLE, network, usage_s=0.0)
    watch.began(attempt)
    reactor.turn()
    assert told
    return attempt, reactor


def test_without_groups_all_is_measured_by_proc_and_by_the_sockets_of_its_processes() -> None:
    attempt, reactor = watched(
        lambda pid: [7] if pid == 101 else [], lambda: [SocketTraffic(1, 7, Traffic(sent=30, received=40))]
    )
    assert (attempt.usage.cpu_ms, attempt.usage.memory_bytes, attempt.usage.processes) == (55, 8192, 3)
    assert (attempt.usage.sent_bytes, attempt.usage.received_bytes) == (30, 40)
    reactor.turn()
    assert (attempt.usage.sent_bytes, attempt.usage.received_bytes) == (30, 40), "it is counted once"


def test_a_kernel_that_shows_no_sockets_leaves_the_rest_measured() -> None:
    def refused() -> list[SocketTraffic]:
        raise OSError(2, "No such file or directory")

    attempt, _ = watched(lambda _: [], refused)
    assert (attempt.usage.cpu_ms, attempt.usage.sent_bytes) == (55, 0)
