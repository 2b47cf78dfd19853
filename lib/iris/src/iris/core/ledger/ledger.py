"""Divides the time of all cores and chips among users, jobs and uses, from the changes of committed batches.

For each worker and moment, the uses add up to the capacity. Attempts hold what is booked. While more is booked than
there is, each attempt counts in proportion.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from iris.core.ledger.book import LedgerBook
from iris.core.ledger.meter import Payer, WorkerMeter, payer_of
from iris.core.state.changes import Changes
from iris.core.state.view import ClusterView
from iris.domain.endpoints import CHECKPOINT, RegisteredEndpoint, endpoint_id
from iris.domain.entities import Task, Worker
from iris.domain.ids import AttemptId, JobId, TaskId, WorkerId, parent_of
from iris.domain.job_spec import is_gang
from iris.domain.scale_groups import GROUP_ATTRIBUTE
from iris.domain.states import LIVE_TASK_STATES, JobState, TaskState
from iris.domain.usage import HOUR_MS, LedgerRow, Owner, Price, Use

_AT_ONCE: Final = 50


def group_of(worker: Worker) -> str:
    """Return the scale group of a worker, or else the variant or kind of its device."""
    device = worker.capacity.accelerator
    name = worker.attributes.get(GROUP_ATTRIBUTE, "")
    return name or ("cpu" if device is None else device.variant or device.kind)


@dataclass(slots=True)
class _Share:
    """The account of one attempt.

    Attributes:
        ran_ms: Undecided running time until `since_ms`. began_ms: Its start.
        verdict: The use of its running time once it has ended; None while it is its task's current attempt.
        stopping: The use of the time from its verdict to its end.
        saved_ms: The time of its last checkpoint (Unix ms); 0 for none.
    """

    worker_id: WorkerId
    payer: Payer
    meter: WorkerMeter
    use: Use = Use.ENVIRONMENT
    cpu: int = 0
    lent: int = 0
    chips: int = 0
    state: TaskState = TaskState.ASSIGNED
    is_first: bool = True
    began_ms: int = 0
    ran_ms: int = 0
    since_ms: int = 0
    size: tuple[int, int] = (0, 0)
    verdict: Use | None = None
    stopping: Use = Use.LOST
    saved_ms: int = 0


class Ledger:
    """The ledger of a cluster.

    Args:
        view: The cluster, which is only read.
        now_ms: Unix ms from which to count the view's attempts, e.g. the end of an earlier life's counts.
        rows: The rows of an earlier life that may still change.
        by: Returns the group of a worker.
        prices: Prices of scale groups and of variants of devices; "cpu" for workers without devices.
    """

    def __init__(
        self,
        view: ClusterView,
        now_ms: int,
        rows: Sequence[LedgerRow] = (),
        by: Callable[[Worker], str] = group_of,
        prices: Mapping[str, Price] | None = None,
    ) -> None:
        self._view = view
        self._by = by
        self._prices = prices or {}
        self._book = LedgerBook()
        self._meters: dict[WorkerId, WorkerMeter] = {}
        self._shares: dict[AttemptId, _Share] = {}
        self._current: dict[TaskId, AttemptId] = {}
        self._kept: dict[WorkerId, Payer] = {}
        self._now_ms = 0
        self._pass(now_ms)
        for row in rows:
            self._book.load(row)
        for worker in view.workers.values():
            self._note_worker(worker)
        for booking in view.bookings.values():
            self._note_booking(booking.attempt_id)
        for job_id in {JobId(row.owner.job) for row in rows if row.owner.job}:
            job = view.jobs.get(job_id)
            if job is None or job.state.is_terminal:  # it ended after the last save
                good = job is not None and job.state is JobState.SUCCEEDED
                self._book.decide_rest(payer_of(job_id), Use.PRODUCTIVE if good else Use.LOST)

    def note(self, changes: Changes, now_ms: int) -> None:
        """Take in the changes of a batch, which the view has.

        Args:
            changes: The changes.
            now_ms: Unix ms.
        """
        self._pass(now_ms)
        for worker in changes.workers.values():
            self._note_worker(worker)
        for task in changes.tasks.values():
            name = task.attempt_id
            before = self._current.get(task.task_id, name)
            if before != name:
                self._sync(before, task, is_current=False)
            if task.state in LIVE_TASK_STATES or name in self._shares:
                self._sync(name, task)
        for names in (changes.stopping, changes.lending, changes.prefilled, changes.lost):
            for name in names:
                self._sync(name)
        for endpoint in changes.endpoints.values():
            if endpoint is not None and endpoint.name.endswith(f"/{CHECKPOINT}"):
                self._note_checkpoint(endpoint)
        for checkpoint in changes.checkpoints:
            self._note_checkpoint(checkpoint)
        for job in changes.jobs.values():
            if job.state.is_terminal:
                payer = payer_of(job.job_id)
                if payer[1] == job.job_id:
                    self._book.decide_rest(payer, Use.PRODUCTIVE if job.state is JobState.SUCCEEDED else Use.LOST)
        for worker_id in changes.forgotten_workers:
            if worker_id not in self._view.workers:
                self._meters.pop(worker_id).settle(self._now_ms)

    def keep(self, kept: Mapping[WorkerId, JobId], now_ms: int) -> None:
        """Set which workers the scheduler keeps free, and for which job."""
        if not kept and not self._kept:
            return
        self._pass(now_ms)
        wanted = {worker_id: payer_of(job_id) for worker_id, job_id in kept.items()}
        for worker_id in {*wanted, *self._kept}:
            if (meter := self._meters.get(worker_id)) is not None:
                meter.keep_for(wanted.get(worker_id), self._now_ms)
        self._kept = wanted

    def settle(self, now_ms: int) -> Iterator[None]:
        """Bring all amounts up to date, some workers at a time."""
        self._pass(now_ms)
        for number, meter in enumerate([*self._meters.values()], 1):
            meter.settle(self._now_ms)
            if number % _AT_ONCE == 0:
                yield

    def changed(self, counted_ms: int) -> list[LedgerRow]:
        """Return the rows to write since the last call.

        Args:
            counted_ms: The end of the counted time (Unix ms).
        """
        return self._book.changed(counted_ms)

    def forget(self, before_ms: int) -> None:
        """Treat older time as final."""
        self._book.forget(before_ms)

    def _pass(self, now_ms: int) -> None:
        if now_ms > self._now_ms:
            self._now_ms = now_ms
            self._book.hour_ms = now_ms - now_ms % HOUR_MS

    def _note_worker(self, worker: Worker) -> None:
        worker_id, now_ms = worker.worker_id, self._now_ms
        group = self._by(worker)
        meter = self._meters.get(worker_id)
        if meter is None:
            meter = self._meters[worker_id] = WorkerMeter(group, now_ms, self._book.add)
        elif meter.group != group:
            meter.settle(now_ms)
            meter.group = group
        device = worker.capacity.accelerator
        for name in (group, "cpu" if device is None else device.variant):
            if name in self._prices:
                self._book.prices.setdefault(group, self._prices[name])
        is_open = worker.connected and not worker.is_late
        meter.set_capacity(worker.capacity.cpu_millis, 0 if device is None else device.count, is_open, now_ms)

    def _note_checkpoint(self, endpoint: RegisteredEndpoint) -> None:
        """Count an attempt's time so far as productive, however the attempt ends. One member speaks for its gang."""
        task, _ = self._view.find_attempt(endpoint.attempt_id)
        if task is None:
            return
        whole = is_gang(self._view.jobs[task.job_id].spec)
        for member in self._view.tasks[task.job_id] if whole else (task,):
            share = self._shares.get(member.attempt_id)
            # That of an attempt which was lost and is back is an old one.
            if share is not None and share.saved_ms < endpoint.registered_at_ms:
                share.saved_ms = endpoint.registered_at_ms
                self._pause(share)
                share.meter.shift(share.payer, Use.RUNNING, self._now_ms)
                self._decide(share, Use.PRODUCTIVE)

    def _note_booking(self, name: AttemptId) -> None:
        """Open the account of an attempt that the stored view has."""
        task, number = self._view.find_attempt(name)
        is_current = task is not None and task.state.is_live and task.attempt == number
        self._sync(name, task if is_current else None)
        share = self._shares.get(name)
        if share is not None and share.use is Use.RUNNING and task is not None and task.started_at_ms:
            saved = self._view.endpoints.get(endpoint_id(f"{task.job_id}/{CHECKPOINT}", name))
            share.saved_ms = 0 if saved is None else saved.registered_at_ms
            share.began_ms = min(max(task.started_at_ms, share.saved_ms), self._now_ms)
            share.ran_ms = self._now_ms - share.began_ms

    def _sync(self, name: AttemptId, task: Task | None = None, *, is_current: bool = True) -> None:
        """Make an attempt's account equal to its booking.

        Args:
            name: The attempt.
            task: Its task's new record; None if unchanged.
            is_current: Whether it is the attempt in that record.
        """
        view = self._view
        booking = view.bookings.get(name)
        if booking is not None and booking.prefilled:
            booking = None
        share = self._shares.get(name)
        if share is None:
            if booking is None:
                return
            worker_id = booking.worker_id
            share = self._shares[name] = _Share(worker_id, payer_of(booking.job_id), self._meters[worker_id])
            if not booking.stopping:
                self._current[TaskId(name.rpartition(":")[0])] = name
        if task is not None:
            self._note_task(share, name, task, is_current)
        self._pause(share)
        if booking is None:
            self._hold(share, share.use, 0, 0, 0)
            lost = view.lost.get(name)
            # A lost attempt may become current again.
            if lost is None or not lost.may_return:
                self._decide(share, Use.LOST if share.verdict is None else share.verdict)
            if lost is None:
                del self._shares[name]
            return
        resources = booking.resources
        device = resources.accelerator
        use = share.stopping if booking.stopping else _use_of(share, booking.waits > 0)
        cpu = booking.cpu_millis
        chips = 0 if device is None or booking.reserves else device.count
        self._hold(share, use, cpu, resources.cpu_millis - cpu, chips)
        share.size = (resources.cpu_millis, chips)
        # One that is to be tried again may still save its work.
        if booking.stopping and share.stopping is not Use.RESTART:
            self._decide(share, Use.LOST if share.verdict is None else share.verdict)

    def _note_task(self, share: _Share, name: AttemptId, task: Task, is_current: bool) -> None:
        if is_current and task.state in LIVE_TASK_STATES:
            self._current[task.task_id] = name
            share.state, share.verdict = task.state, None
            share.is_first = task.attempt <= self._view.jobs[task.job_id].first_attempt
            return
        if self._current.get(task.task_id) == name:
            del self._current[task.task_id]
        if share.verdict is None:
            good = is_current and _has_result(task, self._view)
            share.verdict = Use.PRODUCTIVE if good else Use.LOST
            if good:
                share.stopping = Use.PRODUCTIVE
            else:
                share.stopping = Use.LOST if task.state.is_terminal else Use.RESTART

    def _hold(self, share: _Share, use: Use, cpu: int, lent: int, chips: int) -> None:
        meter, now_ms = share.meter, self._now_ms
        if (use, cpu, lent, chips) != (share.use, share.cpu, share.lent, share.chips):
            if share.cpu or share.lent or share.chips:
                meter.shift(share.payer, share.use, now_ms, -share.cpu, -share.lent, -share.chips)
            if cpu or lent or chips:
                meter.shift(share.payer, use, now_ms, cpu, lent, chips)
            load = self._view.loads.get(share.worker_id)
            if load is not None and (load.reserved or meter.reserved):
                meter.reserve({tree: found.taken - found.used for tree, found in load.reserved.items()}, now_ms)
            share.use, share.cpu, share.lent, share.chips = use, cpu, lent, chips
        share.since_ms = now_ms

    def _pause(self, share: _Share) -> None:
        """Add the running time since the last change."""
        if share.use is Use.RUNNING and (share.cpu or share.chips):
            share.began_ms = share.began_ms or share.since_ms
            share.ran_ms += self._now_ms - share.since_ms
            share.since_ms = self._now_ms

    def _decide(self, share: _Share, use: Use) -> None:
        """Move an attempt's running time, which its meter has handed over, to its final use."""
        if share.ran_ms:
            cpu, chips = share.size
            owner = Owner(*share.payer, share.meter.group)
            amounts = (float(cpu * share.ran_ms), float(chips * share.ran_ms))
            self._book.decide(owner, use, *amounts, share.began_ms, self._now_ms)
        share.ran_ms = share.began_ms = 0


def _use_of(share: _Share, waits: bool) -> Use:
    if share.state is not TaskState.RUNNING:
        return Use.ENVIRONMENT if share.is_first else Use.RESTART
    return Use.WAITING if waits else Use.RUNNING


def _has_result(task: Task, view: ClusterView) -> bool:
    """Return whether an ended task served its purpose. A program stops its own workers when it needs them no more."""
    if task.state is not TaskState.KILLED:
        return task.state is TaskState.SUCCEEDED
    parent_id = parent_of(task.job_id)
    parent = None if parent_id is None else view.jobs.get(parent_id)
    return parent is not None and (not parent.state.is_terminal or parent.state is JobState.SUCCEEDED)
