"""Sessions of workers without a wire: whose word counts, which ends wait for their log, who is late or lost."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from iris.controller.engine.engine import Engine
from iris.controller.logs.hub import LogHub
from iris.controller.logs.store import LogStore
from iris.controller.workers.connected import ConnectedWorker, Greeting, Report, WorkerHost
from iris.controller.workers.orders import Farewell, Outgoing
from iris.controller.workers.sessions import Sessions
from iris.core.rules.contact import ContactRules
from iris.core.rules.rivals import Life
from iris.core.state.changes import Changes
from iris.core.state.view import ClusterView
from iris.domain.errors import StorageUnavailable
from iris.domain.events import (
    AttemptObserved,
    Event,
    JobSubmitted,
    StopRequested,
    WorkerDisconnected,
    WorkerHeard,
    WorkerLate,
    WorkerLost,
)
from iris.domain.ids import AttemptId, JobId, WorkerId
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.resources import Resources
from iris.domain.states import FailureKind, PreemptionReason, TaskState
from iris.rpc.logformat import encode
from rigging.errors import Conflict, Unavailable
from support.iris.loops import FrozenLoop

W, JOB, ATTEMPT = WorkerId("w1"), JobId("/ann/a"), AttemptId("/ann/a/0:0")
LIFE = Life("one", "here")
LINE = encode(False, 1, b"all that it said")
RULES = ContactRules(late_after_ms=2000, lost_after_ms=10_000, fence_margin_ms=500)


class NotingEngine(Engine):
    """Keeps the events of which nobody waits."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.posted: list[Event] = []

    def post(self, event: Event) -> None:
        self.posted.append(event)
        super().post(event)


class Rig:
    """A controller's sessions whose time passes only in `advance`; `posted` has the events of which nobody waits."""

    def __init__(self, place: Path, loop: FrozenLoop) -> None:
        self.loop = loop
        self.refused = False
        self.seen: list[WorkerId] = []
        self.confirm: Callable[[], Awaitable[None]] = self._confirmed
        self.view = ClusterView()
        self.engine = NotingEngine(
            self.view, self, lambda: round(loop.now_s * 1000), lambda error: pytest.fail(str(error))
        )
        self.posted = self.engine.posted
        hub = LogHub(self.view, LogStore(place))
        self.sessions = Sessions(self.engine, hub, RULES, 5.0, self.seen.append, lambda: self.confirm())
        self.engine.listen(self.sessions.on_effects)

    def commit(self, changes: Changes) -> None:
        if self.refused:
            raise StorageUnavailable("database or disk is full")

    async def _confirmed(self) -> None: ...

    async def advance(self, seconds: float) -> None:
        self.loop.now_s += seconds
        for _ in range(4):
            await asyncio.sleep(0)

    async def open(
        self,
        name: str = W,
        life: Life = LIFE,
        inventory: tuple[Report, ...] = (),
        leaving: bool = False,
        host: WorkerHost | None = None,
    ) -> ConnectedWorker:
        capacity, host = Resources(cpu_millis=8000), host or WorkerHost()
        attributes = {"rack": "r1"}
        greeting = Greeting(
            WorkerId(name), life.instance_id, capacity, attributes, inventory, leaving, host, life.place
        )
        return await self.sessions.open(greeting)

    async def given(self) -> ConnectedWorker:
        """A session whose worker was given the job's one attempt."""
        session = await self.open()
        await self.engine.submit(JobSubmitted(JobSpec(JOB, CommandEntrypoint(("true",)), Resources(cpu_millis=1000))))
        assert (await self.sent(session)).start == {JOB: {(0, 0): False}}
        return session

    async def sent(self, session: ConnectedWorker) -> Outgoing:
        """What is on its way to a worker."""
        await self.advance(0.02)
        return await session.orders.take(0) or Outgoing()

    async def settled(self) -> None:
        """Return once what was posted has happened and is committed."""
        await self.advance(0.0)
        await self.engine.settled()

    async def end(self) -> None:
        self.sessions.stop_timers()
        self.engine.close()

    async def silent(self, seconds: float) -> list[type[Event]]:
        """Let time pass in which nobody says anything; return the kinds of what was posted meanwhile."""
        known = len(self.posted)
        for _ in range(round(seconds * 4)):
            await self.advance(0.25)
        return [type(event) for event in self.posted[known:]]

    def state(self) -> TaskState:
        return self.view.tasks[JOB][0].state


def fallen(attempt: str, kind: FailureKind) -> Report:
    event = AttemptObserved(AttemptId(attempt), WorkerId(f"w{attempt[-3]}"), TaskState.FAILED, failure_kind=kind)
    return Report(event, 0)


def seen(state: TaskState, log_size: int = 0, attempt: AttemptId = ATTEMPT) -> Report:
    return Report(AttemptObserved(attempt, W, state), log_size)


@pytest.fixture
def loop() -> FrozenLoop:
    return FrozenLoop()


@pytest.fixture
def rig(tmp_path: Path, loop: FrozenLoop, runner: asyncio.Runner) -> Iterator[Rig]:
    async def make() -> Rig:
        return Rig(tmp_path, loop)

    problems: list[object] = []
    loop.set_exception_handler(lambda _, context: problems.append(context))
    rig = runner.run(make())
    yield rig
    runner.run(rig.end())
    assert problems == []


async def test_only_the_newest_session_of_a_worker_speaks_for_it(rig: Rig) -> None:
    older = await rig.given()
    newer = await rig.open()
    assert (older.superseded, older.orders.closed) == (True, True)
    assert (newer.superseded, newer.orders.closed) == (False, False)
    await rig.advance(1.0)
    rig.sessions.heard(older, 7)
    assert rig.sessions.silent_ms(W) == 1000
    rig.sessions.resize(older, Resources(cpu_millis=1))
    rig.sessions.note_trouble(older, "no guardian")
    rig.sessions.begin_leaving(older)
    rig.sessions.report(older, seen(TaskState.RUNNING))
    rig.sessions.close(older)
    assert rig.posted == []
    assert not older.is_leaving
    rig.sessions.heard(newer, 8)
    assert rig.sessions.silent_ms(W) == 0
    assert (await rig.sent(newer)).beat_ack == 8
    rig.sessions.resize(newer, Resources(cpu_millis=9000))
    rig.sessions.note_trouble(newer, "no guardian")
    rig.sessions.report(newer, seen(TaskState.RUNNING))
    await rig.settled()
    worker = rig.view.workers[W]
    assert (worker.capacity.cpu_millis, worker.trouble, rig.state()) == (9000, "no guardian", TaskState.RUNNING)
    rig.sessions.close(newer)
    rig.sessions.close(newer)
    await rig.settled()
    assert not rig.view.workers[W].connected
    assert newer.orders.closed
    assert sum(isinstance(event, WorkerDisconnected) for event in rig.posted) == 1


async def test_one_that_leaves_is_given_nothing_and_says_so_once(rig: Rig) -> None:
    session = await rig.open()
    rig.sessions.begin_leaving(session)
    assert rig.sessions.present(W), "it may come back"
    rig.sessions.begin_leaving(session, PreemptionReason.SPOT)
    assert rig.posted == [WorkerDisconnected(W, "one")]
    assert not rig.sessions.present(W)
    again = await rig.open(life=Life("two", "here"), leaving=True)
    assert again.is_leaving
    assert not rig.view.workers[W].connected
    assert not (await rig.open(life=Life("three", "here"))).is_leaving
    assert rig.view.workers[W].connected
    assert rig.sessions.present(W)


async def test_a_gang_on_a_host_that_ends_has_the_notice_everywhere_and_the_worker_counts_until_its_end(
    rig: Rig,
) -> None:
    both = [await rig.open(), await rig.open("w2")]
    need, gang = Resources(cpu_millis=8000), {"replicas": 2, "coscheduling_group_by": "rack"}
    spec = JobSpec(JOB, CommandEntrypoint(("true",)), need, grace_ms=9000, **gang)  # type: ignore[arg-type]
    await rig.engine.submit(JobSubmitted(spec))
    for session in both:
        assert (await rig.sent(session)).start
    rig.sessions.begin_leaving(both[0], PreemptionReason.MAINTENANCE)
    await rig.settled()
    for session in both:
        ((name, notice),) = (await rig.sent(session)).notices.items()
        assert notice == (PreemptionReason.MAINTENANCE, 9000)
        assert rig.sessions.present(W)
        rig.sessions.report(session, Report(AttemptObserved(name, session.worker_id, TaskState.KILLED), 0))
        await rig.settled()
    assert not rig.sessions.present(W)
    assert rig.view.tasks[JOB][0].failures == 0


async def test_an_end_waits_for_its_log_and_counts_once(rig: Rig) -> None:
    session = await rig.given()
    rig.sessions.report(session, seen(TaskState.RUNNING, len(LINE)))
    assert len(rig.posted) == 1, "only ends wait"
    rig.sessions.report(session, seen(TaskState.SUCCEEDED, len(LINE)))
    rig.sessions.append_log(session, ATTEMPT, 0, LINE[:5])
    await rig.advance(4.0)
    rig.sessions.report(session, seen(TaskState.SUCCEEDED, len(LINE)))  # told again, it gets no more time
    assert len(rig.posted) == 1
    assert (await rig.sent(session)).log_acks == {ATTEMPT: 5}
    rig.sessions.append_log(session, ATTEMPT, 5, LINE[5:])
    await rig.settled()
    assert rig.state() is TaskState.SUCCEEDED
    assert (await rig.sent(session)).log_acks == {ATTEMPT: len(LINE)}
    await rig.advance(10.0)
    assert len(rig.posted) == 2


async def test_what_is_lost_of_a_log_is_waited_for_so_long_and_no_longer(rig: Rig) -> None:
    session = await rig.given()
    rig.sessions.report(session, seen(TaskState.SUCCEEDED, 100))
    await rig.advance(3.0)
    rig.sessions.report(session, seen(TaskState.SUCCEEDED, 100))
    await rig.advance(1.9)
    assert rig.posted == []
    await rig.advance(0.2)
    assert rig.posted == [seen(TaskState.SUCCEEDED).event]
    await rig.advance(10.0)
    assert len(rig.posted) == 1


async def test_nobody_waits_for_the_log_of_an_attempt_that_is_not_known(rig: Rig) -> None:
    session = await rig.given()
    for name in ("/ann/a/0:1", "/ann/a/1:0", "/ann/b/0:0"):
        rig.sessions.report(session, seen(TaskState.SUCCEEDED, 100, AttemptId(name)))
    rig.sessions.report(session, seen(TaskState.SUCCEEDED))  # there is no log
    assert len(rig.posted) == 4


@pytest.mark.parametrize("end", ["superseded", "closed", "controller ends"])
async def test_an_end_that_waits_is_told_again_by_the_next_session_and_not_passed_on(rig: Rig, end: str) -> None:
    session = await rig.given()
    rig.sessions.report(session, seen(TaskState.SUCCEEDED, len(LINE)))
    if end == "superseded":
        await rig.open(inventory=(seen(TaskState.SUCCEEDED, len(LINE)),))
        assert rig.state() is TaskState.RUNNING, "until its log is here"
    elif end == "closed":
        rig.sessions.close(session)
    else:
        rig.sessions.stop_timers()
    await rig.advance(4.9)
    assert session.held == {}
    rig.sessions.append_log(session, ATTEMPT, 0, LINE)
    assert [event for event in rig.posted if isinstance(event, AttemptObserved)] == []


async def test_of_a_worker_that_is_expelled_the_ends_count_that_it_has_told(rig: Rig) -> None:
    session = await rig.given()
    rig.sessions.report(session, seen(TaskState.SUCCEEDED, len(LINE)))
    assert rig.sessions.expel(W, "its credential was revoked")
    await rig.settled()
    assert rig.state() is TaskState.SUCCEEDED


async def test_what_a_worker_has_when_it_comes_back_counts_with_its_log(rig: Rig) -> None:
    rig.sessions.close(await rig.given())
    session = await rig.open(inventory=(seen(TaskState.SUCCEEDED, len(LINE)),))
    assert rig.state() is TaskState.RUNNING
    rig.sessions.append_log(session, ATTEMPT, 0, LINE)
    await rig.settled()
    assert rig.state() is TaskState.SUCCEEDED
    assert (await rig.sent(session)).forget == {ATTEMPT: None}


async def test_a_stop_goes_to_the_worker_that_is_connected_and_else_waits_for_it(rig: Rig) -> None:
    session = await rig.given()
    await rig.open("w2")
    await rig.engine.submit(StopRequested(JOB))
    assert list((await rig.sent(session)).stop) == [ATTEMPT]
    rig.sessions.close(session)
    again = await rig.open(inventory=(seen(TaskState.RUNNING), seen(TaskState.RUNNING, 0, AttemptId("/bob/x/0:0"))))
    outgoing = await rig.sent(again)
    assert list(outgoing.stop) == [ATTEMPT, "/bob/x/0:0"]
    assert outgoing.stop[AttemptId("/bob/x/0:0")] == "the controller does not know this attempt"


async def test_what_a_worker_never_heard_of_is_sent_again_and_what_nobody_knows_is_forgotten(rig: Rig) -> None:
    rig.sessions.close(await rig.given())
    outgoing = await rig.sent(await rig.open(inventory=(seen(TaskState.SUCCEEDED, 9, AttemptId("/bob/x/0:0")),)))
    assert (outgoing.start, list(outgoing.forget)) == ({JOB: {(0, 0): False}}, ["/bob/x/0:0"])
    again = await rig.open(life=Life("two", "here"))
    await rig.settled()
    assert (await rig.sent(again)).start == {JOB: {(0, 1): False}}, "its former life lost what ran there"


@pytest.mark.parametrize(
    ("life", "silent_s", "succeeds"),
    [
        (Life("one", "boot:dir"), 0, True),  # a new connection, or a new process that speaks for the same guardian
        (Life("one"), 0, True),
        (Life("two", "boot:dir"), 0, True),  # its guardian was killed with it: one work directory, one worker
        (Life("two", "boot:copy"), 0, False),
        (Life("two", "reboot:dir"), 4.75, False),
        (Life("two", "reboot:dir"), 5, True),
        (Life("two"), 4.75, False),  # of a former release
        (Life("two"), 5, True),
    ],
)
async def test_of_two_that_use_one_name_the_one_that_is_heard_has_it(
    rig: Rig, caplog: pytest.LogCaptureFixture, life: Life, silent_s: float, succeeds: bool
) -> None:
    holder = await rig.open(life=Life("one", "boot:dir"))
    await rig.silent(silent_s)
    if succeeds:
        await rig.open(life=life)
        assert (holder.superseded, rig.sessions.rival_of(W)) == (True, "")
        return
    for _ in range(3):
        with pytest.raises(
            Conflict, match="'w1' is connected from an unknown address, and is heard: this one, at copy's"
        ):
            await rig.open(life=life, host=WorkerHost("copy's"))
    assert (holder.superseded, rig.sessions.rival_of(W), caplog.text.count("a second worker w1")) == (
        False,
        "copy's",
        1,
    )
    assert rig.sessions.silent_ms(W) == silent_s * 1000, "what is refused is no sign of life"
    await rig.silent(60.25)
    assert rig.sessions.rival_of(W) == ""


async def test_a_clock_that_is_far_off_is_told_once(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    session = await rig.open()
    for skew_ms, error_ms in ((5100, 100), (-5101, 100), (-9000, 0), (0, 0), (5002, 1)):
        rig.sessions.note_skew(session, skew_ms, error_ms)
    assert rig.sessions.host_of(W) == WorkerHost(skew=(5002, 1))
    told = [record.getMessage()[:46] for record in caplog.records]
    assert told == ["the clock of worker w1 is 5.1 s behind this co", "the clock of worker w1 is 5.0 s ahead of this "]


async def test_a_worker_is_told_nothing_before_its_connection_is_kept_or_it_is_let_go(rig: Rig) -> None:
    async def broken() -> None:
        raise Unavailable("no storage")

    rig.confirm = broken
    with pytest.raises(Unavailable, match="no storage"):
        await rig.open()
    await rig.settled()
    assert not rig.view.workers[W].connected
    assert rig.seen == []
    kept = asyncio.Event()

    async def later() -> None:
        await kept.wait()

    rig.confirm = later
    opening = asyncio.ensure_future(rig.open())
    await rig.advance(1.0)
    assert not opening.done()
    kept.set()
    await opening
    assert rig.seen == [W]


async def test_at_the_end_all_are_told_and_waited_for(rig: Rig) -> None:
    first, second = await rig.open(), await rig.open("w2")
    ending = asyncio.ensure_future(rig.sessions.say_goodbye("it is late", True, 30))
    for session in (first, second):
        assert (await rig.sent(session)).goodbye == Farewell("it is late", True)
    with pytest.raises(Unavailable, match="the controller is leaving: it is late"):
        await rig.open("w3")
    rig.sessions.close(first)
    await rig.advance(29.0)
    assert not ending.done()
    rig.sessions.close(second)
    await rig.advance(0.0)
    assert ending.done()


async def test_a_deaf_worker_is_waited_for_only_so_long_and_nobody_not_at_all(rig: Rig, tmp_path: Path) -> None:
    empty = Rig(tmp_path / "empty", rig.loop)
    await asyncio.wait_for(empty.sessions.say_goodbye("none is there", False, 3600), 3600)
    assert not empty.sessions.present(W)
    await rig.open()
    ending = asyncio.ensure_future(rig.sessions.say_goodbye("it is late", True, 30))
    await rig.advance(0.0)
    await rig.advance(30.1)
    assert ending.done()


async def test_silence_makes_a_worker_late_then_lost_and_a_word_in_between_takes_it_back(rig: Rig) -> None:
    rig.sessions.start()
    session = await rig.given()
    assert await rig.silent(1.5) == []
    assert await rig.silent(1.0) == [WorkerLate]
    rig.sessions.heard(session)
    assert isinstance(rig.posted[-1], WorkerHeard)
    rig.sessions.heard(session)
    assert await rig.silent(1.5) == [], "heard twice, told once"
    assert await rig.silent(7.5) == [WorkerLate]
    assert rig.sessions.present(W)
    assert not session.orders.closed
    assert await rig.silent(1.5) == [WorkerDisconnected, WorkerLost]
    assert session.orders.closed
    assert not rig.sessions.present(W)
    assert await rig.silent(5) == []


async def test_nobody_is_late_while_the_controller_cannot_write(rig: Rig) -> None:
    """What workers say then is not read; it is not their silence."""
    rig.sessions.start()
    session = await rig.open()
    rig.refused = True
    rig.sessions.resize(session, Resources(cpu_millis=1))
    await rig.silent(15)
    assert rig.engine.stalled
    assert len(rig.posted) == 1
    rig.refused = False
    for _ in range(30):
        await rig.advance(0.25)
        rig.sessions.heard(session)
    assert rig.engine.stalled == ""
    assert not any(isinstance(event, WorkerLost) for event in rig.posted)


async def test_after_a_start_known_workers_have_their_time_to_come_back(rig: Rig) -> None:
    session = await rig.given()
    rig.sessions.report(session, seen(TaskState.RUNNING))
    rig.sessions.close(session)
    await rig.advance(60.0)
    rig.posted.clear()
    rig.sessions.start()
    assert rig.sessions.present(W)
    assert rig.sessions.silent_ms(W) == 0
    assert WorkerLost not in await rig.silent(9.75)
    assert (await rig.silent(0.75)).count(WorkerLost) == 1
    rig.sessions.stop_timers()
    rig.posted.clear()
    await rig.open()
    assert await rig.silent(5) == [], "nobody looks any more"


@pytest.mark.parametrize("other", [FailureKind.DEVICE, FailureKind.PREEMPTED, None])
async def test_a_member_that_blames_another_waits_for_its_cause(rig: Rig, other: FailureKind | None) -> None:
    first, second = await rig.open("w0"), await rig.open("w1")
    need, fields = Resources(cpu_millis=8000), {"replicas": 2, "coscheduling_group_by": "rack"}
    await rig.engine.submit(
        JobSubmitted(JobSpec(JOB, CommandEntrypoint(("true",)), need, max_retries_failure=1, **fields))
    )
    assert (await rig.sent(second)).start == {JOB: {(1, 0): False}}
    ended = fallen("/ann/a/1:0", FailureKind.PEER)
    rig.sessions.report(second, ended)
    await rig.advance(6.0)
    again = await rig.open("w1", inventory=(ended,))
    rig.sessions.report(again, ended)
    await rig.settled()
    assert rig.posted == [], "it is not told twice, and not before its time"
    if other is not None:
        rig.sessions.report(first, fallen("/ann/a/0:0", other))
    await rig.advance(4.0)
    await rig.settled()
    tasks = rig.view.tasks[JOB]
    assert [task.failures for task in tasks] == ([0, 0] if other is not None else [0, 1])
    assert [task.preemptions for task in tasks] == ([1, 0] if other is not None else [0, 0])
