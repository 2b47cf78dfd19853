"""The pending tasks, indexed for the scheduler."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from weakref import WeakValueDictionary

from iris.core.state.booking import Demand
from iris.core.state.bookings import count
from iris.core.state.delays import Delays
from iris.core.state.kinds import WaitingKinds
from iris.domain.constraints import Constraint
from iris.domain.entities import Job, Task
from iris.domain.ids import JobId
from iris.domain.job_spec import JobSpec, is_gang
from iris.domain.resources import Resources
from iris.domain.states import TaskState


class WaitingTasks:
    """Pending tasks by job, in scheduling order. `ClusterView` explains the attributes of the same names.

    Attributes:
        gangs, demand_counts, kinds: `waiting_gangs`, `waiting_demands` and `waiting_kinds` of the view.
        demands: The demand of each live job's tasks.
    """

    __slots__ = ("_interned", "delays", "demand_counts", "demands", "gangs", "kinds", "pending", "queue")

    def __init__(self) -> None:
        self.queue: list[tuple[int, int, JobId]] = []
        self.pending: dict[JobId, list[int]] = {}
        self.gangs: dict[JobId, None] = {}
        self.demand_counts: dict[Demand, int] = {}
        self.kinds = WaitingKinds()
        self.demands: dict[JobId, Demand] = {}
        self.delays = Delays()
        self._interned: WeakValueDictionary[tuple[Resources, tuple[Constraint, ...]], Demand] = WeakValueDictionary()

    def demand(self, spec: JobSpec) -> Demand:
        """Return the demand of a job's tasks. Equal requests share one."""
        key = (spec.resources, spec.constraints)
        demand = self._interned.get(key)
        if demand is None:
            demand = self._interned[key] = Demand(spec.resources, spec.constraints)
        return demand

    def fill(self, job: Job, tasks: Sequence[Task], now_ms: int) -> None:
        """Add the pending tasks among all tasks of a new job."""
        pending = [task for task in reversed(tasks) if task.state is TaskState.PENDING]
        waiting = [-task.index for task in pending if task.retry_at_ms <= now_ms]
        for task in pending if len(waiting) < len(pending) else ():
            if task.retry_at_ms > now_ms:
                self.delays.add(task.task_id, task.retry_at_ms)
        if waiting and not job.is_barred:
            self.pending[job.spec.job_id] = waiting
            self._enqueue(job)

    def add(self, task: Task, job: Job, now_ms: int) -> None:
        """Add a task that became pending. Tasks of barred jobs are not indexed."""
        if task.retry_at_ms > now_ms:
            self.delays.add(task.task_id, task.retry_at_ms)
            return
        if job.is_barred:
            return
        waiting = self.pending.get(task.job_id)
        if waiting is None:
            self.pending[task.job_id] = [-task.index]
            self._enqueue(job)
        else:
            insort(waiting, -task.index)
            if task.job_id in self.gangs:
                self.note_kind(job)

    def remove(self, task: Task, job: Job) -> None:
        """Remove a task that is no longer pending."""
        if self.delays.remove(task.task_id):
            return
        waiting = self.pending.get(task.job_id)
        if waiting is None:
            return  # the job is barred
        if waiting[-1] == -task.index:
            waiting.pop()
        else:
            del waiting[bisect_left(waiting, -task.index)]
        if not waiting:
            del self.pending[task.job_id]
            self._dequeue(job)
        elif task.job_id in self.gangs:
            self.note_kind(job)

    def move_barred(self, job: Job, tasks: Iterable[Task], now_ms: int) -> None:
        """Take a barred job out of the queue, or put a released one into it.

        Args:
            job: The live job after the change.
            tasks: All its tasks.
            now_ms: Unix ms.
        """
        if not job.is_barred:
            for task in tasks:
                if task.state is TaskState.PENDING and task.task_id not in self.delays:
                    self.add(task, job, now_ms)
        elif self.pending.pop(job.job_id, None) is not None:
            self._dequeue(job)

    def move_spec(self, known: Job, job: Job) -> None:
        """Queue an updated job under its new band and demand. `known` is the job before."""
        is_queued = job.job_id in self.pending
        if is_queued:
            self._dequeue(known)
        self.demands[job.job_id] = self.demand(job.spec)
        if is_queued:
            self._enqueue(job)

    def note_kind(self, job: Job) -> None:
        """Queue a job under its kind, which depends on its state and on how much of a gang is pending."""
        pending = self.pending.get(job.job_id)
        if pending is not None:
            self.kinds.put(job, self.demands[job.job_id], len(pending))

    def _enqueue(self, job: Job) -> None:
        job_id = job.spec.job_id
        insort(self.queue, (job.spec.band, job.sequence, job_id))
        count(self.demand_counts, self.demands[job_id], 1)
        if is_gang(job.spec):
            self.gangs[job_id] = None
        self.note_kind(job)

    def _dequeue(self, job: Job) -> None:
        job_id = job.spec.job_id
        self.gangs.pop(job_id, None)
        del self.queue[bisect_left(self.queue, (job.spec.band, job.sequence, job_id))]
        count(self.demand_counts, self.demands[job_id], -1)
        self.kinds.remove(job_id)
