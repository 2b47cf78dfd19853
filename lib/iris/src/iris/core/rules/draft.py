"""The draft of one reduction: reads through to the view, collects changes, and never modifies the view."""

from collections.abc import Iterator

from iris.core.state.changes import Changes, Reduction
from iris.core.state.view import ClusterView
from iris.domain.effects import Effect, EndpointChanged, JobSettled, StopAttempt
from iris.domain.entities import Job, LostAttempt, Stopping, Task, Worker
from iris.domain.ids import AttemptId, JobId, WorkerId
from iris.domain.job_spec import grace_ms_of, waits_for_host
from iris.domain.states import (
    LIVE_TASK_STATES,
    TASK_TRANSITIONS,
    JobState,
    PreemptionReason,
    TaskState,
    check_task_transition,
)


class Draft:
    """The changes and effects of one event so far, on top of a view.

    Attributes:
        view: The state before the event. now_ms: Unix ms of the event. effects: Actions so far, in order.
        preemption: Why the event takes capacity away; None if it does not.
    """

    __slots__ = ("_changes", "_counts", "_unsettled", "effects", "now_ms", "preemption", "view")

    def __init__(self, view: ClusterView, now_ms: int) -> None:
        self.view = view
        self.now_ms = now_ms
        self.effects: list[Effect] = []
        self.preemption: PreemptionReason | None = None
        self._changes = Changes(at_ms=now_ms)
        self._counts: dict[JobId, list[int]] = {}
        self._unsettled: dict[JobId, None] = {}

    @property
    def changes(self) -> Changes:
        """Return the records to replace so far. `finish` fills in job counts."""
        return self._changes

    def job(self, job_id: JobId) -> Job:
        """Return the current job. Its `task_counts` may lag behind; `counts` does not."""
        job = self._changes.jobs.get(job_id)
        return self.view.jobs[job_id] if job is None else job

    def put_job(self, job: Job) -> None:
        """Replace a job's record. This draft maintains its counts."""
        self._changes.jobs[job.spec.job_id] = job

    def counts(self, job_id: JobId) -> list[int]:
        """Return the number of the job's tasks in each state, by the state's number, updated with each `put_task`."""
        counts = self._counts.get(job_id)
        if counts is None:
            counts = self._counts[job_id] = list(self.job(job_id).task_counts)
        return counts

    def task(self, job_id: JobId, index: int) -> Task:
        """Return the current task."""
        task = self.view.tasks[job_id][index]
        return self._changes.tasks.get(task.task_id, task)

    def tasks_of(self, job_id: JobId) -> Iterator[Task]:
        """Return all current tasks of the job, in order of index."""
        put = self._changes.tasks
        for task in self.view.tasks[job_id]:
            yield put.get(task.task_id, task) if put else task

    def put_task(self, old: Task, new: Task) -> None:
        """Replace a task's record and update its job's counts.

        Raises:
            IllegalTransition: The table does not allow the change of state.
        """
        before, after = old.state, new.state
        if after not in TASK_TRANSITIONS[before]:
            check_task_transition(old.task_id, before, after, old.causes)
        counts = self.counts(old.job_id)
        counts[before] -= 1
        counts[after] += 1
        self._changes.tasks[new.task_id] = new
        if (
            self.view.endpoints
            and before in LIVE_TASK_STATES
            and (after not in LIVE_TASK_STATES or old.attempt != new.attempt)
        ):
            # An endpoint is gone with its attempt, however that ended.
            for endpoint_id in self.view.endpoints.of_attempt(old.attempt_id):
                self._changes.endpoints[endpoint_id] = None

    def stop_attempt(self, task: Task, reason: str) -> None:
        """Ask the worker to end a live task's attempt, which keeps its resources until the worker reports its end.

        An attempt that a late worker never acknowledged keeps no resources, so its successor need not wait.
        """
        worker_id, name = task.worker_id, task.attempt_id
        assert worker_id is not None, f"{name} is {task.state.word} on no worker"
        spec = self.job(task.job_id).spec
        grace_ms = 0 if self.preemption is None else grace_ms_of(spec.grace_ms, self.preemption)
        if task.state is TaskState.ASSIGNED and self.worker(worker_id).is_late and not waits_for_host(spec):
            self.give_up(name, LostAttempt(task.job_id, worker_id, spec.resources))
        else:
            booking = self.view.bookings.get(name)
            held = spec.resources if booking is None else booking.held
            notice = None if self.preemption is None else (self.preemption, grace_ms)
            self._changes.stopping[name] = Stopping(task.job_id, worker_id, held, notice=notice)
        self._unsettled[task.job_id] = None
        self.effects.append(StopAttempt(name, worker_id, reason, self.preemption, grace_ms))

    def worker(self, worker_id: WorkerId) -> Worker:
        """Return the current worker."""
        worker = self._changes.workers.get(worker_id)
        return self.view.workers[worker_id] if worker is None else worker

    def is_out_of_reach(self, worker_id: WorkerId) -> bool:
        """Return whether a worker is late, or this draft has lost it."""
        lost = self._changes.workers.get(worker_id)
        return self.worker(worker_id).is_late or (lost is not None and not lost.connected)

    def give_up(self, name: AttemptId, lost: LostAttempt) -> None:
        """Record a lost attempt, which may still run on an unreachable worker."""
        self._changes.lost[name] = lost

    def give_up_wanted(self, name: AttemptId, worker_id: WorkerId, is_charged: bool) -> None:
        """Declare a live attempt on an unreachable worker lost. It may become current again
        (`iris.core.rules.return_rules`).

        Args:
            name: The attempt.
            worker_id: Its worker.
            is_charged: Whether its loss counts as a preemption of its task.
        """
        booking, endpoints = self.view.bookings[name], self.view.endpoints
        kept = tuple(filter(None, map(endpoints.get, endpoints.of_attempt(name))))
        self.give_up(name, LostAttempt(booking.job_id, worker_id, booking.resources, True, is_charged, kept))

    def forget_lost(self, worker_id: WorkerId) -> None:
        """Record that the lost attempts on that worker are gone."""
        given_up = [name for name, lost in self._changes.lost.items() if lost and lost.worker_id == worker_id]
        self._changes.lost.update(dict.fromkeys([*self.view.lost_on(worker_id), *given_up]))

    def track_stray(self, name: AttemptId, job_id: JobId, worker_id: WorkerId) -> None:
        """Reserve the resources of an attempt that was lost but runs, or may run.

        Args:
            name: The attempt.
            job_id: Its job.
            worker_id: The worker that reported the attempt, or may run it.
        """
        lost = self.view.lost.get(name)
        if lost is not None and not lost.may_return:
            self._changes.lost[name] = None
        resources = self.job(job_id).spec.resources if lost is None else lost.resources
        self._changes.stopping[name] = Stopping(job_id, worker_id, resources, found=True)
        self._unsettled[job_id] = None

    def release(self, name: AttemptId, job_id: JobId) -> None:
        """Release the resources of a stopping attempt that has ended, or whose worker is gone."""
        self._changes.stopping[name] = None
        self._unsettled[job_id] = None

    def release_worker(self, worker_id: WorkerId, is_gone: bool) -> None:
        """Release all attempts that are stopping on a worker, including those that this draft stops.

        Args:
            worker_id: The worker.
            is_gone: Whether the host is gone with all attempts. Otherwise, attempts that wait for their host stay, and
                the others are recorded as lost.
        """
        ending = {
            booking.attempt_id: LostAttempt(booking.job_id, worker_id, booking.resources)
            for booking in self.view.attempts_on(worker_id)
            if booking.stopping
        }
        for name, stopping in self._changes.stopping.items():
            if stopping is not None and stopping.worker_id == worker_id:
                ending[name] = LostAttempt(stopping.job_id, worker_id, stopping.resources)
        for name, lost in ending.items():
            if is_gone:
                self.release(name, lost.job_id)
            elif not waits_for_host(self.job(lost.job_id).spec):
                self.release(name, lost.job_id)
                self.give_up(name, lost)
        self.effects = [
            effect for effect in self.effects if not (isinstance(effect, StopAttempt) and effect.worker_id == worker_id)
        ]

    def check_settled(self, job_id: JobId) -> None:
        """Make `finish` report when the ended job has no attempt left."""
        self._unsettled[job_id] = None

    def finish(self) -> Reduction:
        """Return the outcome, with the jobs' counts filled in."""
        for job_id, counts in self._counts.items():
            job = self.job(job_id)
            fresh = tuple(counts)
            if fresh != job.task_counts:
                self._changes.jobs[job_id] = with_counts(job, fresh)
        for job_id in self._unsettled:
            if self.job(job_id).state.is_terminal and not self._stopping_of(job_id):
                self.effects.append(JobSettled(job_id))
        self.effects += map(EndpointChanged, self._changes.endpoints)
        return Reduction(self._changes, tuple(self.effects))

    def _stopping_of(self, job_id: JobId) -> int:
        count = self.view.stopping_counts.get(job_id, 0)
        for name, stopping in self._changes.stopping.items():
            booking = self.view.bookings.get(name)
            before = booking is not None and booking.stopping and booking.job_id == job_id
            count += int(stopping is not None and stopping.job_id == job_id) - int(before)
        return count


def with_state(job: Job, state: JobState, started_at_ms: int, finished_at_ms: int = 0, error: str = "") -> Job:
    """Return a live job in another state. Written without `replace`, like `with_counts`, because it runs twice for
    every job.

    Args:
        job: The job.
        state: Its new state.
        started_at_ms: Unix time in milliseconds; 0 if not yet.
        finished_at_ms: Unix time in milliseconds; 0 if not yet.
        error: Its error; empty for none.
    """
    return Job(
        job.spec,
        state,
        job.submitted_at_ms,
        started_at_ms,
        finished_at_ms,
        error,
        sequence=job.sequence,
        idempotency_key=job.idempotency_key,
        task_counts=job.task_counts,
        first_attempt=job.first_attempt,
        hold="" if state.is_terminal else job.hold,
        waits="" if state.is_terminal else job.waits,
        ready_at_ms=job.ready_at_ms,
    )


def with_counts(job: Job, counts: tuple[int, ...]) -> Job:
    """Return the job with other counts. Written without `replace`, because it runs for every change of every task."""
    return Job(
        job.spec,
        job.state,
        job.submitted_at_ms,
        job.started_at_ms,
        job.finished_at_ms,
        job.error,
        job.exit_code,
        job.exit_signal,
        job.deciding_task_id,
        job.sequence,
        job.idempotency_key,
        counts,
        job.first_attempt,
        job.hold,
        job.waits,
        job.ready_at_ms,
    )
