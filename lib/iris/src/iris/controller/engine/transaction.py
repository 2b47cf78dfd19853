"""A running batch of the engine, for decisions that read the view and apply events."""

from typing import Final

from iris.core.rules.reduce import reduce
from iris.core.state.batch import Batch
from iris.core.state.view import ClusterView
from iris.domain.effects import JobForgotten
from iris.domain.events import (
    NOBODY,
    AutoCordoned,
    Caller,
    EndpointRegistered,
    EndpointRemoved,
    Event,
    Record,
    Recorded,
    WorkerCordoned,
    WorkerUncordoned,
)
from iris.domain.ids import JobId, WorkerId

# Endpoints decide nothing, and their addresses are no one else's business.
_UNRECORDED: Final = (EndpointRegistered, EndpointRemoved)
_CORDONS: Final = (WorkerCordoned, WorkerUncordoned)


class Transaction:
    """A running batch: applies events to the view, and collects changes and effects.

    Args:
        view: The cluster. Events change it immediately.
        now_ms: The batch's time.
        batch: Collects changes and effects.
        turn: The number of the engine's turn.
    """

    def __init__(self, view: ClusterView, now_ms: int, batch: Batch, turn: int = 0) -> None:
        self._turn = turn
        self.view = view
        self.now_ms = now_ms
        self.batch = batch

    def apply(self, event: Event, caller: Caller = NOBODY, is_decision: bool = False) -> None:
        """Reduce one event, apply its changes to the view and record it. Raise MarinError if the event is refused.

        Args:
            event: The event.
            caller: The caller who requested the event.
            is_decision: Whether the event is the scheduler's decision.
        """
        outcome = reduce(self.view, event, self.now_ms)
        if not isinstance(event, _UNRECORDED):
            self.record(event, caller, is_decision)
        if outcome.changes.workers and not isinstance(event, _CORDONS):
            for worker_id, worker in outcome.changes.workers.items():
                before = self.view.workers.get(worker_id)
                if worker.cordon_reason and before is not None and not before.cordon_reason:
                    self.record(AutoCordoned(worker_id, worker.cordon_reason))
        self.view.apply(outcome.changes)
        self.batch.add(outcome)

    def record(self, what: Recorded, caller: Caller = NOBODY, is_decision: bool = False) -> None:
        """Add a line to the history.

        Args:
            what: The event.
            caller: The caller who requested the event.
            is_decision: Whether the event is the scheduler's decision.
        """
        self.batch.changes.records.append(Record(self._turn, self.now_ms, what, caller, is_decision))

    def forget_job(self, job_id: JobId) -> bool:
        """Remove a job's history. Remove descendants first. Return False if the job is in use, or changed in this
        batch.
        """
        view, changes = self.view, self.batch.changes
        busy = job_id in changes.jobs or job_id in view.children
        if busy or job_id not in view.jobs or not view.is_settled(job_id):
            return False
        changes.lost.update(dict.fromkeys(view.lost_of(job_id)))
        view.forget_job(job_id)
        changes.forgotten_jobs.add(job_id)
        self.batch.effects.append(JobForgotten(job_id))
        return True

    def forget_worker(self, worker_id: WorkerId) -> bool:
        """Remove a worker's record. Return False if it is connected, has attempts, or changed in this batch."""
        view, changes = self.view, self.batch.changes
        worker = view.workers.get(worker_id)
        busy = worker is None or worker.connected or worker_id in changes.workers
        if busy or any(view.attempts_on(worker_id)):
            return False
        changes.lost.update(dict.fromkeys(view.lost_on(worker_id)))
        view.forget_worker(worker_id)
        changes.forgotten_workers.add(worker_id)
        return True
