"""The controller's small parts: leaving when idle, the use of users, a batch that the disk refused, what is shown."""

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from iris.controller.clients.sessions import MAX_CALLS, ClientSessions, ConnectedClient, News, StoppedJobs
from iris.controller.engine.stall import Stall
from iris.controller.upkeep import idle
from iris.controller.upkeep.idle import IdleWatch
from iris.controller.upkeep.usage_keeper import UsageKeeper
from iris.controller.workers.orders import Farewell, Outgoing, WorkerOrders
from iris.core.state.batch import Batch
from iris.core.state.usage import UsageLedger
from iris.core.state.view import ClusterView
from iris.domain.effects import JobSettled
from iris.domain.errors import StorageUnavailable
from iris.domain.ids import AttemptId, JobId
from iris.store.store import UserUse
from rigging.errors import NotFound, Unavailable

A, B = JobId("/ann/a"), JobId("/ann/b")


class Timer:
    def __init__(self, loop: "Loop", at: float, work: Callable[[], None]) -> None:
        self.loop, self.at, self.work = loop, at, work

    def cancel(self) -> None:
        self.loop.timers.remove(self)


class Loop:
    """Time that the test moves on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, work: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self, self.now + seconds, work))
        return self.timers[-1]

    def go_to(self, now: float) -> None:
        while self.timers and min(timer.at for timer in self.timers) <= now:
            timer = min(self.timers, key=lambda item: item.at)
            self.timers.remove(timer)
            self.now = timer.at
            timer.work()
        self.now = now


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    found = Loop()
    monkeypatch.setattr(idle.asyncio, "get_running_loop", lambda: found)
    return found


def test_it_leaves_after_so_long_without_a_call_or_a_live_job(loop: Loop) -> None:
    left: list[float] = []
    live = [False]
    watch = IdleWatch(10, lambda: live[0], lambda: left.append(loop.now))
    loop.now = 3
    watch.start()
    loop.go_to(8)
    watch.touch()
    loop.go_to(17.9)
    assert left == []
    watch.on_call(True)
    loop.go_to(50)
    assert left == [], "a call is under way"
    watch.on_call(False)
    live[0] = True
    loop.go_to(100)
    live[0] = False
    assert left == []
    began = loop.timers[0].at - 10
    loop.go_to(200)
    assert left == [began + 10]
    assert loop.timers == [], "once"


def test_it_never_leaves_without_a_time_and_not_after_its_end(loop: Loop) -> None:
    IdleWatch(0, lambda: False, lambda: pytest.fail("left")).start()
    assert loop.timers == []
    watch = IdleWatch(5, lambda: False, lambda: pytest.fail("left"))
    watch.close()
    watch.start()
    watch.close()
    loop.go_to(100)


class Accounts:
    def __init__(self, *known: UserUse) -> None:
        self.known = list(known)
        self.saved: list[list[UserUse]] = []

    def load_usage(self) -> list[UserUse]:
        return self.known

    def save_usage(self, accounts: list[UserUse]) -> None:
        self.saved.append(accounts)


def test_only_accounts_that_have_grown_are_written() -> None:
    now = 1_000_000
    ledger, store = UsageLedger(), Accounts(UserUse("old", 5000.0, now + 99))
    keeper = UsageKeeper(ledger, store, lambda: now)
    keeper.restore()
    assert ledger.use("old", now) == pytest.approx(5000.0), "a time to come is now"
    assert keeper.save() == 0, "it only decays"
    ledger.shift("ann", 2, now)
    now += 1000
    assert keeper.save() == 1
    assert [(item.user, item.at_ms) for item in store.saved[-1]] == [("ann", now)]
    assert store.saved[-1][0].use == pytest.approx(2000.0, rel=0.01)
    ledger.shift("ann", -2, now)
    now += 1
    assert keeper.save() == 0
    ledger.shift("ann", 1, now)
    assert keeper.save() == 1, "who holds something is charged from here"
    ledger.shift("ann", -1, now)
    ledger.restore("ann", store.saved[-1][0].use + 1100, now)
    assert keeper.save() == 1
    ledger.restore("ann", store.saved[-1][0].use + 900, now)
    assert keeper.save() == 0, "negligible"


def stall(*futures: Any) -> Stall:
    return Stall(Batch(), [(future, None) for future in futures], StorageUnavailable("disk full"), 5000)


def test_a_refused_batch_is_tried_again_ever_more_seldom() -> None:
    found = stall()
    assert [round(found.next_pause_s(), 3) for _ in range(8)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert found.reason(7600).startswith("the controller cannot write its database since 3 s (disk full); what runs")
    assert "since 0 s" in found.reason(4000)


def test_who_waited_for_it_is_told_that_it_was_not_stored() -> None:
    async def test() -> None:
        waits, gone = (asyncio.get_running_loop().create_future() for _ in range(2))
        gone.cancel()
        cancelled: list[bool] = []
        found = stall(waits, gone)
        found.give_up()
        with pytest.raises(Unavailable, match="it could not be stored: disk full"):
            await waits
        found = stall()
        found.timer = cast(asyncio.TimerHandle, SimpleNamespace(cancel=lambda: cancelled.append(True)))
        found.give_up()
        assert cancelled == [True]

    asyncio.run(test())


def test_an_outbox_that_has_nothing_says_so() -> None:
    assert Outgoing().is_empty
    assert not Outgoing().has_desired
    for filled in (
        Outgoing(stop={AttemptId("/a/b/0:0"): "x"}),
        Outgoing(forget={AttemptId("/a/b/0:0"): None}),
        Outgoing(log_acks={AttemptId("/a/b/0:0"): 1}),
        Outgoing(goodbye=Farewell("x", False)),
        Outgoing(beat_ack=1),
    ):
        assert not filled.is_empty
        assert filled.has_desired is bool(filled.stop or filled.forget)


def test_the_highest_beat_is_acknowledged_once() -> None:
    async def test() -> None:
        orders = WorkerOrders()
        for beat in (3, 5, 4):
            orders.acknowledge_beat(beat)
        taken = await orders.take(10)
        assert taken is not None
        assert taken.beat_ack == 5
        orders.acknowledge_beat(1)
        again = await orders.take(10)
        assert again is not None
        assert again.beat_ack == 1
        orders.close()
        assert orders.closed
        assert await orders.take(10) is None
        assert await orders.take(10) is None

    asyncio.run(asyncio.wait_for(test(), 10))


def test_a_session_tells_at_once_what_somebody_waits_for_and_else_soon() -> None:
    async def test() -> None:
        session = ConnectedClient()
        session.ended(A)
        assert await session.take() == News([], [A], []), "after a moment"
        session.ended(B)
        session.waiting = True
        assert session.waiting
        assert await session.take() == News([], [B], [])
        session.ended(A)
        assert await session.take() == News([], [A], [])
        refusal = NotFound("no such job")
        session.refuse(A, refusal)
        session.answer([(7, StoppedJobs((A,), None))])
        assert await session.take() == News([(7, StoppedJobs((A,), None))], [], [(A, refusal)])
        session.close()
        assert await session.take() is None

    asyncio.run(asyncio.wait_for(test(), 10))


def test_what_is_known_is_told_before_the_end() -> None:
    async def test() -> None:
        session = ConnectedClient()
        session.ended(A)
        session.close()
        assert await session.take() == News([], [A], [])
        assert await session.take() is None
        assert not News()

    asyncio.run(asyncio.wait_for(test(), 10))


def test_calls_under_way_keep_a_session_busy_and_bound_it() -> None:
    async def test() -> None:
        session = ConnectedClient()
        assert session.is_idle
        session.begin(MAX_CALLS - 1)
        await session.has_room()
        assert not session.is_idle
        session.begin(1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.has_room(), 0.01)
        session.answer([(number, NotFound("x")) for number in range(MAX_CALLS)])
        await session.has_room()
        assert session.is_idle

    asyncio.run(asyncio.wait_for(test(), 10))


class View:
    settled: frozenset[JobId] = frozenset()

    def job(self, job_id: JobId) -> Any:
        if job_id not in (A, B):
            raise NotFound(f"job {job_id} does not exist")
        return SimpleNamespace()

    def is_settled(self, job_id: JobId) -> bool:
        return job_id in self.settled


def test_each_end_goes_to_those_who_watch_it() -> None:
    async def test() -> None:
        view = View()
        sessions = ClientSessions(cast(ClusterView, view))
        first, second = sessions.open(), sessions.open()
        first.waiting = second.waiting = True
        sessions.watch(first, A)
        sessions.watch(second, B)
        with pytest.raises(NotFound):
            sessions.watch(first, JobId("/ann/x"))
        assert (sessions.is_watched(A), sessions.is_watched(JobId("/ann/x"))) == (True, False)
        sessions.on_effects([JobSettled(A)])
        assert (await first.take(), second.watched) == (News([], [A], []), {B})
        assert not sessions.is_watched(A)
        view.settled = frozenset({A})
        sessions.watch(second, A)
        assert await second.take() == News([], [A], [])
        sessions.end(second)
        assert not sessions.is_watched(B)
        assert len(sessions) == 1
        sessions.on_effects([JobSettled(B)])
        first.begin(1)
        assert not sessions.is_idle
        sessions.end(first)
        assert sessions.is_idle
        sessions.on_use()

    asyncio.run(asyncio.wait_for(test(), 10))


def test_a_use_that_cannot_be_saved_is_told(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Accounts):
        def save_usage(self, accounts: list[UserUse]) -> None:
            raise Unavailable("no disk")

    keeper = UsageKeeper(UsageLedger(), Broken(), lambda: 0)
    with caplog.at_level(logging.ERROR):
        keeper.save_or_tell()
    assert "the use of users could not be saved" in caplog.text
