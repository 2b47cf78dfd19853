"""A running batch of the engine, in which decisions read and apply events."""

from iris.core.rules.reduce import reduce
from iris.core.state.batch import Batch
from iris.core.state.view import ClusterView
from iris.domain.effects import JobForgotten
from iris.domain.events import Event
from iris.domain.ids import JobId, WorkerId


class Transaction:
    """A running batch: apply events to the view, and collect changes and effects.

    Args:
        view: The cluster. Events change it immediately.
        now_ms: The batch's time.
        batch: Collects changes and effects.
    """

    def __init__(self, view: ClusterView, now_ms: int, batch: Batch) -> None:
        self.view = view
        self.now_ms = now_ms
        self.batch = batch

    def apply(self, event: Event) -> None:
        """Reduce one event and apply its changes to the view. Raise MarinError if it is refused."""
        outcome = reduce(self.view, event, self.now_ms)
        self.view.apply(outcome.changes)
        self.batch.add(outcome)

    def forget_job(self, job_id: JobId) -> bool:
        """Remove a job's history, after its descendants'. Return False if it is in use, or changed in this batch."""
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
