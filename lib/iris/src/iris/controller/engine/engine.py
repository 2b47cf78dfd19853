"""The engine: applies events in batches, with one transaction per batch, then carries out the effects.

The engine is the only writer of the view and the store. Events that arrive during a batch form the next batch. A turn
runs without interruption: it reduces every event, schedules, commits once, and only then answers and acts. So
acknowledged changes are on disk.

A batch without a waiting caller, a start or a stop stays open for a moment, to share its commit with later events. So
the ends of many short tasks do not each wait for the disk. Readers of the view call `settled` first, and never see
uncommitted changes.

If the disk refuses a commit, the engine retries it with growing delays. Meanwhile messages of workers wait, new callers
get an error with the reason, and callers of the batch keep waiting. Running attempts continue. No acknowledged change
is lost.

A turn includes a scheduling round, unless very many jobs are pending and the last round was very recent. A round
examines every pending job, so a round per event would leave no time for events.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from iris.controller.dashboard.figures import Figures
from iris.controller.engine.stall import Answer, Stall
from iris.controller.engine.transaction import Transaction
from iris.core.rules.reduce import expired, next_deadline
from iris.core.state.batch import Batch
from iris.core.state.changes import Changes
from iris.core.state.view import ClusterView
from iris.domain.effects import (
    Effect,
    EndpointChanged,
    JobChanged,
    JobEnded,
    JobSettled,
    StartAttempt,
    StopAttempt,
    WithdrawAttempt,
)
from iris.domain.errors import StorageUnavailable
from iris.domain.events import NOBODY, Caller, Event, Recorded
from iris.domain.ids import JobId, WorkerId
from iris.sched.plan import Planner, RoundPlan, pause_ms
from rigging.errors import MarinError, Unavailable

logger = logging.getLogger(__name__)

SHARE_COMMIT_S: Final = 0.01
_LEAVING: Final = "the controller is shutting down"

# Named, because a union written in the loop is made anew for each effect.
_URGENT: Final = (StartAttempt, StopAttempt, WithdrawAttempt, EndpointChanged)
_OF_JOBS: Final = (JobChanged, JobEnded, JobSettled)

Listener = Callable[[Sequence[Effect]], None]
Result = TypeVar("Result")

# A limit that cannot be carried out must not spin the loop.
_SHORTEST_TIMER_S: Final = 0.001


class Committer(Protocol):
    """The part of the store that the engine uses."""

    def commit(self, changes: Changes) -> None: ...


Decision = Callable[[Transaction], Result]
_Item = tuple[Event | Decision[object], "asyncio.Future[object] | None"]


class Engine:
    """Serialises all changes of the cluster.

    Args:
        view: The state loaded from `store`.
        clock_ms: Returns Unix time in milliseconds.
        on_fatal: Called when a commit failed permanently. Memory and disk then differ, so the process must exit.
        make_room: Called when the disk refused a commit; returns whether to retry immediately.
        share_commit_s: How long a batch without a waiting caller stays open.
    """

    def __init__(
        self,
        view: ClusterView,
        store: Committer,
        clock_ms: Callable[[], int],
        on_fatal: Callable[[Exception], None],
        make_room: Callable[[], bool] = lambda: False,
        share_commit_s: float = SHARE_COMMIT_S,
        plan: Callable[[ClusterView, int], RoundPlan] | None = None,
    ) -> None:
        self.view = view
        self._plan = plan or Planner().plan_round
        self.reasons: Mapping[JobId, str] = {}
        self.kept: Mapping[WorkerId, JobId] = {}
        self._store = store
        self._clock_ms = clock_ms
        self._on_fatal = on_fatal
        self._make_room = make_room
        self._share_commit_s = share_commit_s
        self._stall: Stall | None = None
        self._readers: list[asyncio.Future[None]] = []
        self._loop = asyncio.get_running_loop()
        self._queue: list[_Item] = []
        self._scheduled = False
        self._closed = False
        self._listeners: list[Listener] = []
        self._timer: asyncio.TimerHandle | None = None
        self._last_round_ms = 0
        self._turns = 0
        self._open_batch = Batch()
        self._flush_timer: asyncio.TimerHandle | None = None
        self._flush_due = False
        self._watchers: list[Callable[[JobId], bool]] = []
        self._on_changes: list[Callable[[Changes], None]] = []
        self.figures = Figures()

    def watch(self, is_watched: Callable[[JobId], bool]) -> None:
        """Commit changes of a job immediately if `is_watched` says that a client waits for it."""
        self._watchers.append(is_watched)

    @property
    def stalled(self) -> str:
        """Return why commits currently fail; empty if they succeed."""
        return "" if self._stall is None else self._stall.reason(self._clock_ms())

    async def settled(self) -> None:
        """Wait until all changes in the view are committed. Await this before any answer from the view.

        Raise Unavailable while commits fail.
        """
        if self._stall is not None:
            raise Unavailable(self.stalled)
        while self._open_batch:
            reader: asyncio.Future[None] = self._loop.create_future()
            self._readers.append(reader)
            self._flush()
            await reader

    def listen_to_changes(self, listener: Callable[[Changes], None]) -> None:
        """Call `listener` with the changes of every batch after its commit."""
        self._on_changes.append(listener)

    def listen(self, listener: Listener) -> None:
        """Call `listener` with the effects of every batch after its commit."""
        self._listeners.append(listener)

    def post(self, event: Event) -> None:
        """Apply `event` in the next batch. Log a refusal."""
        self._enqueue(event, None)

    async def submit(self, event: Event) -> None:
        """Apply `event` and return once it is committed. Raise MarinError if it is refused."""
        future: asyncio.Future[object] = self._loop.create_future()
        self._enqueue(event, future)
        await future

    async def decide(self, decision: Decision[Result]) -> Result:
        """Run `decision` inside the next batch, where it reads the view and applies events. Return its result once the
        batch is committed. Its exceptions propagate; events applied before an exception stay applied.
        """
        return await self.begin(decision)

    def begin(self, decision: Decision[Result]) -> "asyncio.Future[Result]":
        """Start a decision like `decide`, without waiting. Consecutive decisions share a batch."""
        future: asyncio.Future[Result] = self._loop.create_future()
        self._enqueue(decision, future)  # type: ignore[arg-type]  # a future of Result is used as one of object
        return future

    def record(self, what: Recorded, caller: Caller = NOBODY) -> None:
        """Add a line to the history with the next batch. Nobody waits for it.

        Args:
            what: The event.
            caller: The caller who requested it.
        """
        self._enqueue(lambda transaction: transaction.record(what, caller), None)

    def wake(self) -> None:
        """Run a batch even if nothing happened: schedule pending tasks, set the timer."""
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def close(self) -> None:
        """Accept no more events. Refuse the queued ones."""
        if self._stall is not None:
            self._try_again()
        elif self._open_batch and not self._closed:
            self._commit(())
        self._closed = True
        if self._stall is not None:
            logger.critical("the last batch could not be written: %s", self._stall.error)
            self._stall.give_up()
        if self._timer is not None:
            self._timer.cancel()
        self._answer_readers(_LEAVING)
        for _, future in self._queue:
            if future is not None and not future.done():
                future.set_exception(Unavailable(_LEAVING))

    def _enqueue(self, work: Event | Decision[object], future: "asyncio.Future[object] | None") -> None:
        if self._closed:
            if future is not None:
                future.set_exception(Unavailable(_LEAVING))
            return
        if self._stall is not None and future is not None:
            future.set_exception(Unavailable(self.stalled))
            return
        self._queue.append((work, future))
        self.wake()

    def _run(self) -> None:
        self._scheduled = False
        if self._closed or self._stall is not None:
            return
        queue, self._queue = self._queue, []
        self._turns += 1
        transaction = Transaction(self.view, self._clock_ms(), self._open_batch, self._turns)
        known = len(transaction.batch.effects)
        self.figures.events += len(queue)
        answers = [answer for item in queue if (answer := _process(transaction, *item)) is not None]
        self._arm_timer(transaction.now_ms, self._schedule(transaction))
        if transaction.batch and not (answers or self._flush_due or self._is_urgent(transaction.batch.effects[known:])):
            if self._flush_timer is None:
                self._flush_timer = self._loop.call_later(self._share_commit_s, self._flush)
            return
        self._commit(answers)

    def _flush(self) -> None:
        self._flush_due = True
        self.wake()

    def _is_urgent(self, effects: Sequence[Effect]) -> bool:
        jobs: dict[JobId, None] = {}  # an end has three effects
        for effect in effects:
            if isinstance(effect, _URGENT):
                return True
            if isinstance(effect, _OF_JOBS):
                jobs[effect.job_id] = None
        return any(is_watched(job_id) for job_id in jobs for is_watched in self._watchers)

    def _commit(self, answers: Sequence[Answer]) -> None:
        """Commit the open batch, carry out its effects and answer. Keep the batch if the disk refuses the commit."""
        batch, self._open_batch = self._open_batch, Batch()
        self._flush_due = False
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        try:
            if not batch.changes.is_durable:
                self._open_batch.changes.records += batch.changes.records
                self._finish(batch, answers)
            elif self._write(batch):
                self._finish(batch, answers)
        except StorageUnavailable as error:
            self._stall = Stall(batch, answers, error, self._clock_ms())
            logger.error("cannot commit: %s; nothing is accepted until it can be written", error)
            self._arm_retry(self._stall)
            self._answer_readers(self.stalled)

    def _answer_readers(self, refusal: str) -> None:
        readers, self._readers = self._readers, []
        for reader in readers:
            if reader.done():
                continue
            if refusal:
                reader.set_exception(Unavailable(refusal))
            else:
                reader.set_result(None)

    def _write(self, batch: Batch) -> bool:
        """Commit a batch. Return False if the commit failed permanently and the process exits. Raise
        StorageUnavailable.
        """
        began = time.perf_counter()
        try:
            try:
                self._store.commit(batch.changes)
            except StorageUnavailable:
                if not self._make_room():
                    raise
                self._store.commit(batch.changes)
        except StorageUnavailable:
            raise
        except Exception as error:  # of any kind: memory is now ahead of the disk
            self._closed = True
            self._on_fatal(error)
            return False
        finally:
            self.figures.commits.add(time.perf_counter() - began)
        return True

    def _finish(self, batch: Batch, answers: Sequence[Answer]) -> None:
        if batch.effects:
            for listener in self._listeners:
                listener(batch.effects)
            self._evict(batch.effects)
        for on_changes in self._on_changes:
            on_changes(batch.changes)
        self._answer_readers("")
        for future, result in answers:
            if not future.done():
                future.set_result(result)

    def _arm_retry(self, stall: Stall) -> None:
        stall.timer = self._loop.call_later(stall.next_pause_s(), self._try_again)

    def _try_again(self) -> None:
        """Retry the refused batch. On success, continue normally."""
        stall = self._stall
        if stall is None or self._closed:
            return
        try:
            is_written = self._write(stall.batch)
        except StorageUnavailable as error:
            stall.error = error
            self._arm_retry(stall)
            return
        self._stall = None
        if is_written:
            logger.warning("commits are written again, after %.1f s", (self._clock_ms() - stall.since_ms) / 1000)
            self._finish(stall.batch, stall.answers)
            self.wake()

    def _evict(self, effects: Sequence[Effect]) -> None:
        # After the commit: only what the store has may leave the memory.
        for effect in effects:
            if isinstance(effect, JobSettled):
                self.view.shelve_job(effect.job_id)
        self.view.trim()

    def _schedule(self, transaction: Transaction) -> int | None:
        """Plan and apply a scheduling round, or postpone the round and return when it is due (Unix ms)."""
        if not (self.view.queue or self.view.prefilled_on):
            self.reasons, self.kept = {}, {}
            return None
        pause = pause_ms(self.view)
        # A clock that was set back holds up nothing.
        if 0 <= transaction.now_ms - self._last_round_ms < pause:
            return self._last_round_ms + pause
        self._last_round_ms = transaction.now_ms
        began = time.perf_counter()
        try:
            plan = self._plan(self.view, transaction.now_ms)
        except Exception as error:  # a mistake of ours must not take along the answers that this turn owes
            self._report("the scheduling round failed", error)
            return None
        finally:
            self.figures.rounds.add(time.perf_counter() - began)
        self.reasons, self.kept = plan.reasons, plan.kept
        for event in plan.events():
            try:
                transaction.apply(event, is_decision=True)
            except Exception as error:  # refused or broken, it changed nothing: the others stand
                self._report(f"{event}, decided by the scheduler, was refused", error)
        return None

    def _report(self, what: str, error: Exception) -> None:
        self._loop.call_exception_handler({"message": f"scheduler: {what}", "exception": error})

    def _arm_timer(self, now_ms: int, next_round_ms: int | None) -> None:
        deadlines = [at_ms for at_ms in (next_deadline(self.view), next_round_ms) if at_ms is not None]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadlines:
            delay = max((min(deadlines) - now_ms) / 1000, _SHORTEST_TIMER_S)
            self._timer = self._loop.call_later(delay, self._enqueue, _apply_expired, None)


def _apply_expired(transaction: Transaction) -> None:
    for event in expired(transaction.view, transaction.now_ms):
        transaction.apply(event)


def _process(
    transaction: Transaction, work: Event | Decision[object], future: "asyncio.Future[object] | None"
) -> "tuple[asyncio.Future[object], object] | None":
    result: object = None
    try:
        if callable(work):
            result = work(transaction)
        else:
            transaction.apply(work)
    except Exception as error:
        # A reduction never changes the view by itself, so one refused or broken event leaves the others whole.
        if future is not None and not future.done():
            future.set_exception(error)
            if not isinstance(error, MarinError):
                logger.exception("cannot decide %s", work)
        elif future is None:
            logger.error("dropped %s", work, exc_info=error)
        return None
    return None if future is None else (future, result)
