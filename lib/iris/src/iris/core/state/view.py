"""The in-memory state of the cluster, with the indexes for fast decisions."""

from collections.abc import Iterable, Iterator
from typing import ClassVar, Self

from iris.core.state.archived_table import Archive, ArchivedTable
from iris.core.state.booking import Booking
from iris.core.state.bookings import BookingTable
from iris.core.state.changes import Changes
from iris.core.state.deadlines import Deadlines
from iris.core.state.endpoint_table import EndpointTable
from iris.core.state.families import Families
from iris.core.state.load import WorkerLoad
from iris.core.state.names import NameFilter
from iris.core.state.prefill import RunTimes, may_be_prefilled
from iris.core.state.usage import UsageLedger
from iris.core.state.waiting import WaitingTasks
from iris.domain.endpoints import RegisteredEndpoint
from iris.domain.entities import Job, JobsPerUser, LostAttempt, Stopping, Task, UserBudget, Worker
from iris.domain.events import AttemptObserved
from iris.domain.ids import (
    AttemptId,
    JobId,
    TaskId,
    WorkerId,
    attempt_id,
    parse_attempt_id,
    parse_task_id,
    user_of,
)
from iris.domain.job_spec import is_gang
from iris.domain.resources import NOTHING, Resources, weight
from iris.domain.states import LIVE_TASK_STATES, TaskState
from rigging.errors import NotFound


class ClusterView:
    """Jobs, tasks and workers as immutable records, with indexes. Only `apply` and `load` change it.

    The attributes are read-only:
        jobs, workers: Records by id; see ArchivedTable for ended jobs. names: The jobs' names.
        tasks: Each job's tasks, in order of index.
        live_jobs: Jobs that have not ended, oldest first. families: Relations of jobs. children: See `Families`.
        queue: (band, sequence, job id) of every job with pending tasks, in scheduling order.
        pending: The pending tasks of each job in `queue`, as negated indexes in ascending order: the last is next.
        Those of barred jobs are in neither.
        waiting_gangs: Jobs in `queue` that are gangs.
        waiting_demands: The number of jobs in `queue` by demand. waiting_kinds: The jobs in `queue` by user and kind.
        touched: The workers that changed, or whose bookings did.
        bookings: The resources of each live or stopping attempt. loads: Their sums by worker.
        stopping_counts: The number of stopping attempts of each job that has any.
        held_counts: Like `stopping_counts`, without attempts that were considered lost. While a job has any, its tasks
        must not start.
        deadlines: Future time limits of jobs.
        delays: Tasks that wait for a retry and are not in `pending` yet.
        prefilled_on: Workers with prefilled attempts.
        run_times: The expected run times of attempts.
        lost: Lost attempts that may still run. endpoints: Addresses of live attempts.
        returned: The last reports of attempts in `lost` whose worker has reconnected, until the decision whether they
        continue.
        usage: Each user's recent usage. budgets: Users' budgets, if any.
        jobs_per_user: Limits from the configuration, not stored.
    """

    shelf_jobs: ClassVar[int] = 5_000
    shelf_tasks: ClassVar[int] = 50_000
    """Number of ended jobs, and of tasks of ended jobs, that stay in memory."""

    def __init__(self) -> None:
        self.names = NameFilter(is_complete=False)
        self.jobs: ArchivedTable[JobId, Job] = ArchivedTable(self.shelf_jobs, names=self.names)
        self.tasks: ArchivedTable[JobId, list[Task]] = ArchivedTable(self.shelf_tasks, len)
        self.workers: dict[WorkerId, Worker] = {}
        self.live_jobs: dict[JobId, None] = {}
        self.families = Families()
        self.children = self.families.children
        self._archive: Archive | None = None
        self._waiting = WaitingTasks()
        self.queue, self.pending = self._waiting.queue, self._waiting.pending
        self.waiting_gangs, self.waiting_kinds = self._waiting.gangs, self._waiting.kinds
        self.waiting_demands, self.demands = self._waiting.demand_counts, self._waiting.demands
        self.delays = self._waiting.delays
        self.deadlines = Deadlines()
        self.next_sequence = 1
        self.usage = UsageLedger()
        self.bookings = BookingTable(self.usage)
        self.loads, self.touched = self.bookings.loads, self.bookings.touched
        self.stopping_counts = self.bookings.stopping_counts
        self.held_counts = self.bookings.held_counts
        self.prefilled_on = self.bookings.prefilled_on
        self.budgets: dict[str, UserBudget] = {}
        self.jobs_per_user = JobsPerUser()
        self.lost: dict[AttemptId, LostAttempt] = {}
        self.returned: dict[AttemptId, AttemptObserved] = {}
        self.endpoints = EndpointTable()
        self.run_times = RunTimes()
        self._now_ms = 0

    # ---- reading ----

    def job(self, job_id: JobId) -> Job:
        """Return the job with this id.

        Raises:
            NotFound: The job does not exist.
        """
        job: Job | None = self.jobs.get(job_id)
        if job is None:
            raise NotFound(f"job {job_id} does not exist")
        return job

    def task(self, task_id: TaskId) -> Task:
        """Return the task with this id.

        Raises:
            NotFound: The task does not exist. InvalidRequest: The text is not a task id.
        """
        job_id, index = parse_task_id(task_id)
        tasks: list[Task] | None = self.tasks.get(job_id)
        if tasks is None:
            raise NotFound(f"task {task_id} does not exist: there is no job {job_id}")
        if index >= len(tasks):
            raise NotFound(f"task {task_id} does not exist: job {job_id} has tasks 0 to {len(tasks) - 1}")
        return tasks[index]

    def find_attempt(self, name: str) -> tuple[Task | None, int]:
        """Return the task and number in an attempt id. The task is None if it does not exist or the id is malformed."""
        task_name, _, number = name.rpartition(":")
        job_id, _, index = task_name.rpartition("/")
        tasks: list[Task] | None = self.tasks.get(JobId(job_id))
        if tasks is None or not (number.isascii() and number.isdigit() and index.isascii() and index.isdigit()):
            return None, -1
        position = int(index)
        return (tasks[position] if position < len(tasks) else None), int(number)

    def committed(self, worker_id: WorkerId) -> Resources:
        """Return the resources held by live and stopping attempts on a worker, without lent CPUs."""
        return self.loads[worker_id].committed(self.workers[worker_id].capacity)

    def free(self, worker_id: WorkerId) -> Resources:
        """Return the free resources of a worker. CPUs may be negative while lent ones are taken back."""
        return self.workers[worker_id].capacity.sub(self.committed(worker_id))

    def attempts_on(self, worker_id: WorkerId) -> Iterator[Booking]:
        """Return the live and stopping attempts on a worker."""
        load = self.loads.get(worker_id)
        return iter(()) if load is None else iter(load.bookings.values())

    def is_settled(self, job_id: JobId) -> bool:
        """Return whether the job has ended and no worker has its attempts any more."""
        return self.jobs[job_id].state.is_terminal and job_id not in self.stopping_counts

    # ---- changing ----

    @classmethod
    def load(
        cls,
        jobs: Iterable[Job],
        tasks: Iterable[Task],
        workers: Iterable[Worker],
        archive: Archive | None = None,
        budgets: Iterable[UserBudget] = (),
        endpoints: Iterable[RegisteredEndpoint] = (),
        stopping: Iterable[tuple[AttemptId, Stopping]] = (),
        lost: Iterable[tuple[AttemptId, LostAttempt]] = (),
        next_sequence: int = 1,
    ) -> Self:
        """Return the view of stored records, in any order. Lent CPUs are not stored; tasks report them again.

        Args:
            jobs: All jobs or, with an archive, live jobs.
            tasks: Their tasks.
            workers: All workers.
            archive: Contains all jobs.
            budgets: Budgets of users.
            endpoints: Endpoints of live attempts.
            stopping: Stopping attempts, by id.
            lost: Lost attempts that may still run, by id.
            next_sequence: The number of the next job, at least.
        """
        view = cls()
        view.next_sequence = next_sequence
        jobs = sorted(jobs, key=lambda job: job.sequence)
        tasks = sorted(tasks, key=lambda task: task.index)
        changes = Changes.of(jobs, tasks, workers, budgets, endpoints)
        # Which of these have room is learnt from their workers.
        assigned = [task for task in tasks if task.state is TaskState.ASSIGNED]
        changes.prefilled = {
            task.attempt_id: True for task in assigned if may_be_prefilled(changes.jobs[task.job_id].spec)
        }
        view.apply(changes)
        if archive is not None:
            view.attach(archive)
        view.apply(Changes.of(stopping=stopping, lost=lost))  # some are of jobs that have ended
        for booking in view.bookings.values():
            view.loads[booking.worker_id].note_lent(booking)  # not stored: its cpu may be lent
        return view

    def attach(self, archive: Archive) -> None:
        """Keep ended jobs in the archive, which has everything committed."""
        self._archive = archive
        self.jobs.attach(archive.job_of)
        self.tasks.attach(lambda job_id: archive.tasks_of(job_id) or None)

    def apply(self, changes: Changes) -> None:
        """Apply the changes of one outcome, which must come from a reduction of this view."""
        self._now_ms = changes.at_ms
        self.budgets.update(changes.budgets)
        if changes.endpoints:
            self.endpoints.apply(changes.endpoints)
        for worker in changes.workers.values():
            self.workers[worker.worker_id] = worker
            self.touched.note(worker.worker_id)
            if worker.worker_id not in self.loads:
                self.loads[worker.worker_id] = WorkerLoad(self.touched.stamp)
        fresh: dict[JobId, list[Task]] = {}
        for job_id, job in changes.jobs.items():
            known = self.jobs.get(job_id)
            if known is None or known.sequence != job.sequence:
                fresh[job_id] = self._open_job(job)
        for task in changes.tasks.values():
            if task.job_id in fresh:
                fresh[task.job_id].append(task)
            else:
                self._move_task(task, changes)
        for job_id, tasks in fresh.items():
            # A job that was loaded without its tasks has ended: they stay where they are.
            if tasks or not changes.jobs[job_id].state.is_terminal:
                self._fill_job(changes.jobs[job_id], tasks, changes)
        for job in changes.jobs.values():
            self._move_job(job, fresh)
        for name, stopping in changes.stopping.items():
            self._set_stopping(name, stopping)
        for name, given_up in changes.lost.items():
            if given_up is None:
                self.lost.pop(name, None)
                self.returned.pop(name, None)
            else:
                self.lost[name] = given_up
                self.returned.pop(name, None)
        for name, heard in changes.returned.items():
            if heard is None or name not in self.lost:
                self.returned.pop(name, None)
            else:
                self.returned[name] = heard
        for task_id in changes.due:
            if self.delays.remove(task_id):
                task = self.task(task_id)
                self._waiting.add(task, self.jobs[task.job_id], self._now_ms)
        for name, waits in changes.lending.items():
            booking = self.bookings.get(name)
            if booking is not None:
                self.loads[booking.worker_id].set_waits(booking, waits)
                self.touched.note(booking.worker_id)
        for name, is_prefilled in changes.prefilled.items():
            if not is_prefilled:
                self.bookings.begin(self.bookings[name], changes.at_ms)

    def shelve_job(self, job_id: JobId) -> None:
        """Let `trim` drop a settled and committed job from memory, if there is an archive."""
        if self._archive is None or not self.is_settled(job_id):
            return
        self.tasks.evict(job_id)
        self.jobs.evict(job_id)
        self.demands.pop(job_id, None)

    def trim(self) -> None:
        """Drop what was shelved longest ago. Call it only when everything in the view is committed."""
        self.tasks.trim()
        self.jobs.trim()

    def forget_job(self, job_id: JobId) -> None:
        """Remove a settled job. Remove its descendants first."""
        for name in self.lost_of(job_id):
            del self.lost[name]
            self.returned.pop(name, None)
        job = self.jobs.pop(job_id)
        self.families.move(job_id, job, None)
        del self.tasks[job_id]
        self.demands.pop(job_id, None)

    def forget_worker(self, worker_id: WorkerId) -> None:
        """Remove a worker without bookings."""
        for name in self.lost_on(worker_id):
            del self.lost[name]
            self.returned.pop(name, None)
        del self.workers[worker_id]
        del self.loads[worker_id]
        self.touched.note(worker_id)

    def lost_on(self, worker_id: WorkerId) -> list[AttemptId]:
        """Return the lost attempts of a worker."""
        return [name for name, lost in self.lost.items() if lost.worker_id == worker_id]

    def lost_of(self, job_id: JobId) -> list[AttemptId]:
        """Return the lost attempts of a job."""
        return [name for name, lost in self.lost.items() if lost.job_id == job_id]

    def _open_job(self, job: Job) -> list[Task]:
        self.next_sequence = max(self.next_sequence, job.sequence + 1)
        self.demands[job.spec.job_id] = self._waiting.demand(job.spec)
        return []

    def _fill_job(self, job: Job, tasks: list[Task], changes: Changes) -> None:
        job_id = job.spec.job_id
        self.tasks[job_id] = tasks
        self._waiting.fill(job, tasks, self._now_ms)
        for task in tasks:
            if task.state in LIVE_TASK_STATES:
                self._book(task, job, changes)

    def _move_job(self, job: Job, fresh: dict[JobId, list[Task]]) -> None:
        job_id = job.spec.job_id
        known = self.jobs.get(job_id)
        self.jobs[job_id] = job
        is_updated = known is not None and known.spec is not job.spec and job_id not in fresh
        tasks = self.tasks[job_id] if is_updated else fresh.get(job_id, ())
        was_assigned = any(task.attempt >= job.first_attempt for task in tasks)
        if job.spec.timeout_ms or job.spec.scheduling_timeout_ms or job_id in fresh or is_updated:
            self.deadlines.track(None if is_updated else known, job, was_assigned)
        self.families.move(job_id, known, job)
        if known is not None and is_updated:
            self._waiting.move_spec(known, job)
            self.bookings.move_band((task.attempt_id for task in tasks), job.spec.band)
        if known is not None and known.is_barred != job.is_barred and job_id not in fresh and not job.state.is_terminal:
            self._waiting.move_barred(job, self.tasks[job_id], self._now_ms)
        self._waiting.note_kind(job)
        if job.state.is_terminal:
            self.live_jobs.pop(job_id, None)
        elif job_id in fresh:
            self.live_jobs[job_id] = None

    def _move_task(self, new: Task, changes: Changes) -> None:
        tasks = self.tasks[new.job_id]
        old = tasks[new.index]
        tasks[new.index] = new
        was, now = old.state, new.state
        if was is TaskState.PENDING:
            if now is not TaskState.PENDING:
                self._waiting.remove(new, self.jobs[new.job_id])
        elif was in LIVE_TASK_STATES and (now not in LIVE_TASK_STATES or old.attempt != new.attempt):
            name = attempt_id(old.task_id, old.attempt)
            self.run_times.note(new, self.bookings[name])
            if changes.stopping.get(name) is None:
                self.bookings.release(name, self._now_ms)
        if now is TaskState.PENDING:
            if was is not TaskState.PENDING:
                self._waiting.add(new, self.jobs[new.job_id], self._now_ms)
        elif now in LIVE_TASK_STATES and (was not in LIVE_TASK_STATES or old.attempt != new.attempt):
            self._book(new, self.jobs[new.job_id], changes)
        elif was is TaskState.ASSIGNED and now in LIVE_TASK_STATES:
            self.bookings.begin(self.bookings[attempt_id(new.task_id, new.attempt)], self._now_ms)

    def _book(self, task: Task, job: Job, changes: Changes) -> None:
        worker_id = task.worker_id
        if worker_id is None:
            raise NotFound(f"task {task.task_id} is {task.state.word} on no worker")
        name = attempt_id(task.task_id, task.attempt)
        if name in self.bookings:
            self.bookings.release(name, self._now_ms)  # it was found again, and has its task back
        booking = self._booking(name, job, worker_id, job.spec.resources, changes.prefilled.get(name, False))
        self.bookings.hold(booking, self._now_ms)

    def _booking(
        self, name: AttemptId, job: Job, worker_id: WorkerId, held: Resources, prefilled: bool = False
    ) -> Booking:
        job_id = job.spec.job_id
        demand = self.demands.get(job_id) or self._waiting.demand(job.spec)
        held_weight = demand.weight if held == demand.resources else weight(held)
        kind = (user_of(job_id), demand)
        spec = job.spec
        return Booking(
            name, job_id, worker_id, held, is_gang(spec), held_weight, kind, prefilled, spec.reserve, spec.band
        )

    def _set_stopping(self, name: AttemptId, stopping: Stopping | None) -> None:
        bookings, now_ms = self.bookings, self._now_ms
        booking = bookings.get(name)
        if stopping is None:
            if booking is not None and booking.stopping:
                bookings.release(name, now_ms)
            return
        if (
            booking is not None
            and booking.stopping
            and not booking.prefilled
            and booking.resources != stopping.resources
        ):
            bookings.release(name, now_ms)  # it had begun after all
            booking = None
        if booking is None:
            job = self.jobs[stopping.job_id]
            booking = self._booking(name, job, stopping.worker_id, stopping.resources)
            # Whether an earlier job of the name was a gang is not stored.
            booking.is_gang = booking.is_gang and parse_attempt_id(name)[1] >= job.first_attempt
            bookings.hold(booking, now_ms)
        elif booking.prefilled and stopping.resources != NOTHING:
            bookings.begin(booking, now_ms)
        bookings.mark_stopping(booking, stopping.found)
        booking.notice = stopping.notice or booking.notice
