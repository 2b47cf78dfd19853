"""The engine alone: one commit a batch, nothing seen before it."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import create_autospec

import pytest

from fray.testing.waiting import eventually_async
from iris.controller.engine.engine import Engine
from iris.controller.engine.transaction import Transaction
from iris.core.state.archived_table import ArchivedTable
from iris.core.state.changes import Changes
from iris.core.state.view import ClusterView
from iris.domain.effects import Effect, StartAttempt
from iris.domain.errors import StorageUnavailable
from iris.domain.events import Caller, ControllerStarted, JobSubmitted, Requested, StopRequested, WorkerConnected
from iris.domain.ids import JobId, TaskId, WorkerId
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.resources import Resources
from iris.sched.plan import RoundPlan, plan_round
from iris.store.store import Store
from rigging.errors import NotFound, Unavailable


class RecordingStore:
    def __init__(self, story: list[str]) -> None:
        self.commits: list[tuple[int, int, int]] = []
        self.story = story
        self.fails = False
        self.refusals = 0

    def commit(self, changes: Changes) -> None:
        if self.refusals:
            self.refusals -= 1
            raise StorageUnavailable("database or disk is full")
        if self.fails:
            raise OSError(28, "No space left on device")
        self.commits.append((len(changes.jobs), len(changes.tasks), len(changes.workers)))
        self.story.append("commit")


Plan = Callable[[ClusterView, int], RoundPlan]


class Rig:
    def __init__(self) -> None:
        self.story: list[str] = []
        self.effects: list[Effect] = []
        self.fatal: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self.store = RecordingStore(self.story)
        self.now_ms = 1000
        self.plan: Plan = plan_round
        self.room = [False]
        self.engine = Engine(
            ClusterView(),
            self.store,
            lambda: self.now_ms,
            self.fatal.set_result,
            lambda: self.room.pop(0),
            plan=lambda view, now_ms: self.plan(view, now_ms),
        )
        self.engine.listen(self._listen)

    def _listen(self, effects: Sequence[Effect]) -> None:
        self.story.append("effects")
        self.effects += effects


class NotingLoop(asyncio.SelectorEventLoop):
    """Keeps the timers that were set; with `delay_s` each is due after so long."""

    def __init__(self) -> None:
        super().__init__()
        self.delay_s: float | None = None
        self.timers: list[asyncio.TimerHandle] = []

    def call_later(self, delay: float, *rest: Any, **options: Any) -> asyncio.TimerHandle:
        self.timers.append(super().call_later(delay if self.delay_s is None else self.delay_s, *rest, **options))
        return self.timers[-1]


@pytest.fixture
def loop() -> NotingLoop:
    return NotingLoop()


@pytest.fixture
def rig(runner: asyncio.Runner) -> Rig:
    async def make() -> Rig:
        return Rig()

    return runner.run(make())


async def turns() -> None:
    """What was posted has had its batch by then."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def submitted(name: str, cpu_millis: int = 1000) -> JobSubmitted:
    return JobSubmitted(JobSpec(JobId(name), CommandEntrypoint(("true",)), Resources(cpu_millis)))


WORKER = WorkerConnected(WorkerId("w1"), "one", Resources(cpu_millis=8000), {})


async def test_what_arrives_together_is_one_commit_and_is_scheduled_in_it(rig: Rig) -> None:
    events = [WORKER, *(submitted(f"/ann/{name}") for name in "abc")]
    await asyncio.gather(*map(rig.engine.submit, events))
    assert rig.store.commits == [(3, 3, 1)]
    assert rig.story == ["commit", "effects"]
    starts = [effect.attempt_id for effect in rig.effects if isinstance(effect, StartAttempt)]
    assert starts == ["/ann/a/0:0", "/ann/b/0:0", "/ann/c/0:0"]


async def test_a_refused_event_leaves_the_rest_of_its_batch_whole(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    good = asyncio.ensure_future(rig.engine.submit(submitted("/ann/a")))
    bad = asyncio.ensure_future(rig.engine.submit(StopRequested(JobId("/ann/none"))))
    rig.engine.post(StopRequested(JobId("/ann/nobody asks")))
    await good
    with pytest.raises(NotFound, match="job /ann/none does not exist"):
        await bad
    assert rig.store.commits == [(1, 1, 0)]
    dropped = [record.getMessage() for record in caplog.records if "dropped" in record.getMessage()]
    assert len(dropped) == 1, "who asked is told; what nobody asked for is in the log"
    assert "nobody asks" in dropped[0]


async def test_a_broken_round_costs_nobody_an_answer_and_is_reported(rig: Rig) -> None:
    is_broken = True

    def plan(view: ClusterView, now_ms: int) -> RoundPlan:
        if is_broken:
            raise ZeroDivisionError
        return plan_round(view, now_ms)

    rig.plan = plan
    reports: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report["message"]))
    await asyncio.gather(rig.engine.submit(WORKER), rig.engine.submit(submitted("/ann/a")))
    is_broken = False
    assert rig.store.commits == [(1, 1, 1)]
    assert reports == ["scheduler: the scheduling round failed"]
    rig.engine.wake()
    await rig.engine.submit(submitted("/ann/b"))
    assert [effect.attempt_id for effect in rig.effects if isinstance(effect, StartAttempt)] == [
        "/ann/a/0:0",
        "/ann/b/0:0",
    ]


async def test_a_decision_of_the_round_that_is_refused_leaves_the_others(rig: Rig) -> None:
    def too_much(view: ClusterView, now_ms: int) -> RoundPlan:
        plan = plan_round(view, now_ms)
        return replace(plan, assignments=[(TaskId("/ann/none/0"), WorkerId("w1")), *plan.assignments])

    rig.plan = too_much
    reports: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report["message"]))
    await asyncio.gather(rig.engine.submit(WORKER), rig.engine.submit(submitted("/ann/a")))
    assert [effect.attempt_id for effect in rig.effects if isinstance(effect, StartAttempt)] == ["/ann/a/0:0"]
    assert len(reports) == 1
    assert "/ann/none/0" in reports[0]


async def test_where_many_jobs_wait_rounds_are_apart_and_none_is_forgotten(rig: Rig) -> None:
    rounds: list[int] = []

    def counted(view: ClusterView, now_ms: int) -> RoundPlan:
        rounds.append(now_ms)
        return plan_round(view, now_ms)

    rig.plan = counted

    def submit_many(transaction: Transaction) -> None:
        for index in range(1000):
            transaction.apply(submitted(f"/ann/many-{index}", 1000 + index))

    await rig.engine.decide(submit_many)
    assert rounds == [1000]
    # 10 ms are kept between rounds: what comes sooner is stored and answered, and scheduled when they are over.
    rig.now_ms = 1009
    await rig.engine.submit(WorkerConnected(WorkerId("w"), "i", Resources(cpu_millis=1000), {}))
    assert rounds == [1000]
    assert not any(isinstance(effect, StartAttempt) for effect in rig.effects)
    started = asyncio.Event()
    rig.engine.listen(lambda effects: started.set())
    rig.now_ms = 1010
    await started.wait()
    assert any(isinstance(effect, StartAttempt) for effect in rig.effects)
    assert rounds == [1000, 1010]
    # A clock that is set back holds up nothing.
    rig.now_ms = 500
    await rig.engine.submit(submitted("/ann/late"))
    assert rounds == [1000, 1010, 500]


async def test_when_a_commit_fails_nobody_is_answered_and_nothing_is_done(rig: Rig) -> None:
    rig.store.fails = True
    answer = asyncio.ensure_future(rig.engine.submit(submitted("/ann/a")))
    assert "No space left on device" in str(await rig.fatal)
    assert not answer.done()
    assert rig.effects == []
    with pytest.raises(Unavailable, match="shutting down"):  # and nothing more is taken
        await rig.engine.submit(submitted("/ann/b"))
    answer.cancel()


async def stalled(rig: Rig) -> None:
    """Return when a commit was refused."""
    while not rig.engine.stalled:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.001)


async def test_what_the_disk_refuses_is_tried_again_and_nobody_is_answered_before(rig: Rig, loop: NotingLoop) -> None:
    loop.delay_s = 0.01
    rig.store.refusals, rig.room = 3, [False] * 3
    first = asyncio.ensure_future(rig.engine.submit(submitted("/ann/a")))
    await stalled(rig)
    assert not first.done()
    assert rig.story == []
    rig.now_ms = 8000
    for refused in (rig.engine.submit(submitted("/ann/b")), rig.engine.settled()):
        with pytest.raises(Unavailable, match=r"cannot write its database since 7 s .database or disk is full"):
            await refused
    rig.engine.post(WORKER)  # what workers say waits
    await first
    assert rig.store.commits[0] == (1, 1, 0)
    await rig.engine.submit(submitted("/ann/c"))
    assert rig.story[:2] == ["commit", "effects"]
    starts = [effect.attempt_id for effect in rig.effects if isinstance(effect, StartAttempt)]
    assert starts == ["/ann/a/0:0", "/ann/c/0:0"]
    assert "/ann/b" not in rig.engine.view.jobs
    assert not rig.fatal.done()


async def test_where_room_can_be_made_a_refused_commit_is_repeated_at_once(rig: Rig) -> None:
    rig.store.refusals, rig.room = 1, [True]
    await rig.engine.submit(submitted("/ann/a"))
    assert (rig.story, rig.engine.stalled) == (["commit", "effects"], "")


async def test_at_the_end_a_refused_batch_is_tried_once_more_and_then_told_lost(rig: Rig) -> None:
    rig.store.refusals, rig.room = 2, [False] * 2
    waiting = asyncio.ensure_future(rig.engine.submit(submitted("/ann/a")))
    await stalled(rig)
    rig.engine.close()
    with pytest.raises(Unavailable, match="the change could not be stored: database or disk is full"):
        await waiting


async def test_a_decision_sees_what_it_has_applied_and_one_of_nothing_is_no_commit(rig: Rig) -> None:
    def decide(transaction: Transaction) -> int:
        transaction.apply(submitted("/ann/a"))
        return transaction.view.job(JobId("/ann/a")).sequence

    assert await rig.engine.decide(lambda transaction: transaction.now_ms) == 1000
    assert rig.story == []
    assert await rig.engine.decide(decide) == 1
    assert rig.story == ["commit", "effects"]


async def test_one_timer_runs_at_a_time(rig: Rig, loop: NotingLoop) -> None:
    """Else each batch would leave one, and wake the controller for nothing when it runs out."""
    loop.timers.clear()
    for name in "abc":
        event = submitted(f"/ann/{name}")
        await rig.engine.submit(replace(event, spec=replace(event.spec, scheduling_timeout_ms=60_000)))
    waiting = [timer for timer in loop.timers if not timer.cancelled()]
    assert (len(loop.timers), len(waiting)) == (3, 1)
    rig.engine.close()


async def test_after_close_events_are_refused(rig: Rig) -> None:
    waiting = asyncio.ensure_future(rig.engine.submit(submitted("/ann/a")))
    await asyncio.sleep(0)  # queued, not yet at work
    rig.engine.close()
    with pytest.raises(Unavailable, match="shutting down"):
        await waiting
    await asyncio.sleep(0.001)  # the turn that was to work on it has come
    assert rig.store.commits == []
    assert not rig.engine.view.jobs


async def test_what_nobody_waits_for_shares_the_next_commit_and_is_not_seen_before(rig: Rig) -> None:
    rig.engine.post(submitted("/ann/a"))
    await turns()
    assert rig.story == []
    await rig.engine.submit(submitted("/ann/b"))
    assert rig.store.commits == [(2, 2, 0)]
    assert rig.story == ["commit", "effects"]
    rig.engine.post(submitted("/ann/c"))
    await asyncio.sleep(0)
    await rig.engine.settled()
    assert rig.store.commits[1:] == [(1, 1, 0)]
    rig.engine.post(submitted("/ann/d"))
    await turns()
    assert len(rig.store.commits) == 2, "each is kept open anew"


async def test_it_is_kept_open_only_for_a_moment(rig: Rig) -> None:
    committed = asyncio.Event()
    rig.engine.listen(lambda effects: committed.set())
    rig.engine.post(submitted("/ann/a"))
    await committed.wait()
    assert rig.store.commits == [(1, 1, 0)]


async def test_what_starts_or_stops_something_is_not_kept_open(rig: Rig) -> None:
    await rig.engine.submit(WORKER)
    rig.engine.post(submitted("/ann/a"))
    await turns()
    assert rig.store.commits[1:] == [(1, 1, 0)], "its worker waits for it"
    assert rig.effects


async def test_an_open_batch_is_urgent_by_what_comes_and_one_timer_is_enough(rig: Rig, loop: NotingLoop) -> None:
    loop.delay_s, timers = 3600, loop.timers
    timers.clear()
    asked: list[str] = []
    rig.engine.watch(lambda job_id: asked.append(job_id) is not None)
    rig.engine.watch(lambda job_id: job_id == "/ann/b")
    for name in ("/ann/a", "/ann/c"):
        rig.engine.post(submitted(name))
        await turns()
    assert (rig.story, len(timers)) == ([], 1)
    assert asked == ["/ann/a", "/ann/c"], "each is asked for once, when it is news"
    rig.engine.post(submitted("/ann/b"))
    await turns()
    assert rig.store.commits == [(3, 3, 0)]
    assert timers[0].cancelled(), "else it would end the next batch too early"


async def test_who_reads_as_a_commit_is_refused_or_the_end_comes_is_told(rig: Rig) -> None:
    rig.engine.post(submitted("/ann/a"))
    await turns()
    rig.store.refusals, rig.room = 1, [False] * 3
    reading = asyncio.ensure_future(rig.engine.settled())
    with pytest.raises(Unavailable, match="database or disk is full"):
        await reading
    rig.engine.close()
    assert rig.store.commits == [(1, 1, 0)], "tried once more"
    rig.engine.close()
    assert len(rig.store.commits) == 1


async def test_a_broken_decision_is_told_to_who_asked_and_costs_nobody_else_anything(rig: Rig) -> None:
    def broken(transaction: Transaction) -> None:
        raise ZeroDivisionError

    good = asyncio.ensure_future(rig.engine.submit(submitted("/ann/a")))
    gone = asyncio.ensure_future(rig.engine.decide(broken))
    gone.cancel()
    with pytest.raises(ZeroDivisionError):
        await rig.engine.decide(broken)
    await good
    assert rig.store.commits == [(1, 1, 0)]


async def test_jobs_and_tasks_leave_the_memory_only_once_their_end_is_committed(rig: Rig) -> None:
    view, archive = rig.engine.view, create_autospec(Store, instance=True)
    archive.job_of.side_effect = lambda job_id: rig.story.append(f"fetch {job_id}")
    archive.tasks_of.return_value = []
    view.jobs, view.tasks = ArchivedTable(0), ArchivedTable(0, len)
    view.attach(archive)
    await rig.engine.submit(submitted("/ann/a"))
    job_id = JobId("/ann/a")

    def stop(transaction: Transaction) -> bool:
        transaction.apply(StopRequested(job_id))
        return dict.__contains__(view.tasks, job_id) and dict.__contains__(view.jobs, job_id)

    assert await rig.engine.decide(stop)
    assert not view.tasks
    assert not view.jobs
    assert rig.story == ["fetch /ann/a", *["commit", "effects"] * 2], "a new name is looked for once"
    assert job_id not in view.jobs
    assert rig.story[-1] == "fetch /ann/a"


async def test_the_start_of_a_controller_is_written_with_the_first_commit_and_a_request_at_once(rig: Rig) -> None:
    written: list[object] = []
    commit = rig.store.commit
    rig.store.commit = lambda changes: (commit(changes), written.append([type(r.what) for r in changes.records]))[0]
    rig.engine.record(ControllerStarted("1"))
    await rig.engine.decide(lambda _: None)
    assert written == [], "a full disk stops no controller from starting"
    rig.engine.record(Requested("revoke users' tokens"), Caller("root"))
    await eventually_async(lambda: written, "the request is written")
    assert written == [[ControllerStarted, Requested]]
