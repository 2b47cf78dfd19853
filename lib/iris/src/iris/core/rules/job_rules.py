"""Rules for a job and its descendants when a user submits or stops it, or its tasks change."""

from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

from iris.core.rules import after_rules, return_rules
from iris.core.rules.draft import Draft, with_state
from iris.core.rules.task_rules import Verdict, evict, kill, requeue
from iris.core.state.view import ClusterView
from iris.domain.constraints import PLACE_KEYS
from iris.domain.effects import JobChanged, JobEnded
from iris.domain.entities import NO_TASKS, Job, Task
from iris.domain.events import JobHeld, JobReleased, JobSubmitted, JobUpdated, StopRequested, TimedOut
from iris.domain.ids import JobId, parent_of, task_id, user_of
from iris.domain.job_spec import JobSpec, is_gang
from iris.domain.states import LIVE_TASK_STATES, TERMINAL_TASK_STATES, JobState, PriorityBand, TaskState, TimeoutKind
from rigging.errors import AlreadyExists, BudgetExceeded, Conflict, Denied, NotFound


def submit(draft: Draft, event: JobSubmitted) -> None:
    """Create the job and its tasks. Change nothing if the job of that name has the key.

    Raises:
        AlreadyExists: A live job has that name. NotFound: The parent does not exist. Conflict: The parent has ended.
        Denied: The user may not use that band. Also raise like `after_rules.open_waits`.
    """
    view, spec = draft.view, event.spec
    known = view.jobs.get(spec.job_id)
    if known is not None and event.idempotency_key and known.idempotency_key == event.idempotency_key:
        return
    if known is not None and not known.state.is_terminal:
        raise AlreadyExists(
            f"job {spec.job_id} exists and is {known.state.word}; stop it, adopt it, or choose another name"
        )
    check_parent(view, spec)
    check_band(view, spec)
    waits = after_rules.open_waits(view, spec)
    last_attempt = -1
    if known is not None:
        # Attempt numbers fence reports of the ended job of that name: no number is ever used twice.
        last_attempt = max(task.next_attempt - 1 for task in view.tasks[spec.job_id])
        last_attempt = max(last_attempt, known.first_attempt - 1)
        draft.changes.replaced.add(spec.job_id)
    spec = _with_place_of_parent(draft, spec)
    counts = list(NO_TASKS)
    counts[TaskState.PENDING] = spec.replicas
    draft.changes.updated.add(spec.job_id)
    draft.put_job(
        Job(
            spec,
            JobState.PENDING,
            draft.now_ms,
            sequence=view.next_sequence,
            idempotency_key=event.idempotency_key,
            task_counts=tuple(counts),
            first_attempt=last_attempt + 1,
            waits=waits,
        )
    )
    tasks = draft.changes.tasks
    for index in range(spec.replicas):
        name = task_id(spec.job_id, index)
        tasks[name] = Task(name, spec.job_id, index, TaskState.PENDING, last_attempt, retry_at_ms=spec.start_at_ms)
    draft.effects.append(JobChanged(spec.job_id))


def _with_place_of_parent(draft: Draft, spec: JobSpec) -> JobSpec:
    """Return the spec with its parent's region and zone if it names none, because data and peers are there."""
    parent_id = parent_of(spec.job_id)
    if parent_id is None:
        return spec
    named = {constraint.key for constraint in spec.constraints if not constraint.soft}
    inherited = tuple(
        constraint
        for constraint in draft.view.jobs[parent_id].spec.constraints
        if constraint.key in PLACE_KEYS and constraint.key not in named and not constraint.soft
    )
    return replace(spec, constraints=spec.constraints + inherited) if inherited else spec


def check_band(view: ClusterView, spec: JobSpec) -> None:
    """Raise Denied if the user may not submit in the job's band."""
    user = user_of(spec.job_id)
    budget = view.budgets.get(user)
    if budget is not None and spec.band < budget.max_band:
        allowed = f"the most urgent allowed is {budget.max_band.word}"
        raise Denied(f"user {user} may not submit in the {spec.band.word} band; {allowed}")


def check_pending_jobs(view: ClusterView, spec: JobSpec) -> None:
    """Raise BudgetExceeded if the user has the maximum number of pending jobs. A job that will be replaced does not
    count.
    """
    limit, user = view.jobs_per_user.max_pending, user_of(spec.job_id)
    if not limit or parent_of(spec.job_id) is not None:
        return
    known = view.jobs.get(spec.job_id)
    pending = view.families.roots_of(user).get(JobState.PENDING, 0)
    if pending - (known is not None and known.state is JobState.PENDING) >= limit:
        raise BudgetExceeded(
            f"job {spec.job_id} is refused: user {user} has {pending} pending jobs, and the cluster allows {limit} "
            "(jobs_per_user.max_pending); wait until one starts, or stop one: `iris job list --state pending`"
        )


def check_parent(view: ClusterView, spec: JobSpec) -> None:
    """Raise NotFound if the job's parent does not exist, Conflict if it has ended."""
    parent_id = parent_of(spec.job_id)
    if parent_id is None:
        return
    parent = view.jobs.get(parent_id)
    why = f"job {spec.job_id} cannot be submitted: its parent {parent_id}"
    if parent is None:
        raise NotFound(f"{why} does not exist")
    if parent.state.is_terminal:
        raise Conflict(f"{why} has ended ({parent.state.word})")


def reserved_beside(view: ClusterView, spec: JobSpec) -> int:
    """Return the number of tasks of the job's live siblings that hold equal parts of the same reservation."""
    parent_id = parent_of(spec.job_id)
    siblings = [view.jobs[name].spec for name in view.children.get(parent_id, ())] if parent_id is not None else []
    return sum(
        sibling.replicas
        for sibling in siblings
        if sibling.job_id != spec.job_id and sibling.reserve and sibling.resources == spec.resources
    )


def stop(draft: Draft, event: StopRequested) -> None:
    """End the job and its descendants. An ended job is unchanged.

    Raises:
        NotFound: The job does not exist.
    """
    job = draft.view.job(event.job_id)
    if not job.state.is_terminal:
        end_job(draft, job, JobState.KILLED, event.reason or "stopped", keep_children=event.keep_children)


def hold(draft: Draft, event: JobHeld) -> None:
    """Start no task of the job until its release. Prefilled attempts without a reported start are handed back.

    A held job is unchanged.

    Raises:
        NotFound: The job does not exist. Conflict: It has ended.
    """
    job = draft.view.job(event.job_id)
    if job.state.is_terminal:
        raise Conflict(f"job {job.job_id} has ended ({job.state.word}); only live jobs can be held")
    if job.hold:
        return
    since = datetime.fromtimestamp(draft.now_ms / 1000, UTC)
    held = f"held by {event.by} since {since:%Y-%m-%d %H:%M} UTC"
    draft.put_job(replace(job, hold=held))
    draft.effects.append(JobChanged(job.job_id))
    for task in list(draft.tasks_of(job.job_id)) if job.count(TaskState.ASSIGNED) else ():
        booking = draft.view.bookings.get(task.attempt_id)
        if booking is not None and booking.prefilled and not booking.stopping:
            follow_task(draft, *evict(draft, task, f"the job is {held}", is_charged=False))


def release(draft: Draft, event: JobReleased) -> None:
    """Let the tasks of a held job start. Another job is unchanged. Raise NotFound."""
    job = draft.view.job(event.job_id)
    if job.hold:
        draft.put_job(replace(job, hold=""))
        draft.effects.append(JobChanged(job.job_id))


def update(draft: Draft, event: JobUpdated) -> None:
    """Change parts of a live job's request. Raise like `updated_spec`."""
    job = draft.view.job(event.job_id)
    draft.put_job(replace(job, spec=updated_spec(draft.view, event)))
    draft.changes.updated.add(job.job_id)
    draft.effects.append(JobChanged(job.job_id))


def updated_spec(view: ClusterView, event: JobUpdated) -> JobSpec:
    """Return the spec of a job after an update.

    Raises:
        NotFound: The job does not exist. Conflict: It has ended, or has started and its resources would change.
        Denied: The user may not use that band.
    """
    job = view.job(event.job_id)
    if job.state.is_terminal:
        raise Conflict(f"job {job.job_id} has ended ({job.state.word}); only live jobs can be updated")
    told: dict[str, Any] = {item.name: getattr(event, item.name) for item in fields(event)}
    told = {name: value for name, value in told.items() if value != -1}
    resources = {name: told.pop(name) for name in ("cpu_millis", "memory_bytes", "disk_bytes") if name in told}
    if resources and any(task.attempt >= job.first_attempt for task in view.tasks[job.job_id]):
        what = ", ".join(name.partition("_")[0] for name in resources)
        raise Conflict(f"job {job.job_id} has started, so its {what} cannot change; submit another job")
    if "band" in told:
        told["band"] = PriorityBand(told["band"])
    spec = replace(job.spec, **told, resources=replace(job.spec.resources, **resources))
    if "band" in told:
        check_band(view, spec)
    return spec


def time_out(draft: Draft, event: TimedOut) -> None:
    """End the job whose time limit expired, unless the limit no longer applies."""
    job = draft.view.jobs.get(event.job_id)
    if job is None or job.state.is_terminal:
        return
    spec = job.spec
    if event.what is TimeoutKind.RUN:
        end_job(draft, job, JobState.FAILED, f"timed out: it ran longer than {spec.timeout_ms / 1000:g} s")
        return
    if job.state is JobState.PENDING and all(task.attempt < job.first_attempt for task in draft.tasks_of(job.job_id)):
        reason = f"not scheduled within {spec.scheduling_timeout_ms / 1000:g} s"
        end_job(draft, job, JobState.UNSCHEDULABLE, reason)


def follow_task(draft: Draft, task: Task, verdict: Verdict) -> None:
    """Update the job after a change of one of its tasks.

    Args:
        draft: Receives the changes.
        task: The task after its change.
        verdict: The consequence of its attempt's end.
    """
    if verdict is Verdict.NOTHING:
        return
    job = draft.job(task.job_id)
    if verdict is Verdict.FINAL and not _is_tolerated(draft, job, task):
        _end_for_task(draft, job, task)
        return
    if verdict is Verdict.RETRY:
        if is_gang(job.spec):
            restart_with(draft, task)
        if (back := return_rules.take_back(draft, task)) is not None:
            follow_task(draft, *back)
            return
    counts = draft.counts(task.job_id)
    if counts[TaskState.SUCCEEDED] + counts[TaskState.FAILED] == job.spec.replicas:
        end_job(draft, job, JobState.SUCCEEDED, "")
        return
    state = _live_state(job, counts)
    if state is not job.state:
        began = max(task.started_at_ms or draft.now_ms, job.submitted_at_ms)
        started = job.started_at_ms or (began if state is JobState.RUNNING else 0)
        draft.put_job(with_state(job, state, started))
    if state is not job.state or (verdict is Verdict.FINAL and task.state is TaskState.FAILED):
        draft.effects.append(JobChanged(task.job_id))


def take_back_returned(draft: Draft) -> None:
    """Make returned attempts current for every waiting task of the job, where possible."""
    for task in return_rules.returned_tasks(draft):
        if (back := return_rules.take_back(draft, task)) is not None:
            follow_task(draft, *back)


def _live_state(job: Job, counts: list[int]) -> JobState:
    if counts[TaskState.RUNNING] or counts[TaskState.SUCCEEDED] or counts[TaskState.FAILED]:
        return JobState.RUNNING
    if counts[TaskState.ASSIGNED] or counts[TaskState.BUILDING]:
        return JobState.RUNNING if job.state is JobState.RUNNING else JobState.BUILDING
    return JobState.PENDING


def _is_tolerated(draft: Draft, job: Job, task: Task) -> bool:
    """Return whether the job continues without a task that failed for good. A gang does not."""
    spec = job.spec
    if task.state is not TaskState.FAILED or is_gang(spec):
        return False
    return draft.counts(task.job_id)[TaskState.FAILED] <= spec.max_task_failures


def _end_for_task(draft: Draft, job: Job, task: Task) -> None:
    if task.state is TaskState.WORKER_FAILED:
        times = f" {task.preemptions} times (max_retries_preemption={job.spec.max_retries_preemption})"
        error = f"task {task.index} lost its worker{times if task.preemptions > 1 else ''}: {task.error}"
        end_job(draft, job, JobState.WORKER_FAILED, error, task)
        return
    if task.state is TaskState.PREEMPTED:
        times = f" {task.preemptions} times" if task.preemptions > 1 else ""
        limit = f"max_retries_preemption={job.spec.max_retries_preemption}"
        error = f"task {task.index} was preempted{times} ({limit}): {task.error}"
        end_job(draft, job, JobState.WORKER_FAILED, error, task)
        return
    tries = f" (the last of {task.failures} failed attempts)" if task.failures > 1 else ""
    error = f"task {task.index} failed: {task.error}{tries}"
    failed = draft.counts(task.job_id)[TaskState.FAILED]
    if failed > 1:
        error = f"{failed} tasks failed for good (max_task_failures={job.spec.max_task_failures}); the last: {error}"
    end_job(draft, job, JobState.FAILED, error, task)


def end_job(
    draft: Draft, job: Job, state: JobState, error: str, decider: Task | None = None, keep_children: bool = False
) -> None:
    """Put a live job into a terminal state, end its other tasks, and kill its live child jobs. Release the jobs that
    waited for it, or end those that can never start.

    Args:
        draft: Receives the changes.
        job: The live job.
        state: The terminal state.
        error: Its error text.
        decider: The task that decided the job's end, if any.
        keep_children: Whether its descendants continue.
    """
    ending = [(job, state, error, decider)]
    while ending:
        job, state, error, decider = ending.pop()
        job_id = job.spec.job_id
        job = draft.job(job_id)
        if job.state.is_terminal:
            continue  # it waited for two of these
        if state is not JobState.SUCCEEDED:
            _end_tasks(draft, job_id, state, error if decider is None else f"job ended: {error}")
        started, finished = _times(draft, job, state, decider)
        ended = with_state(job, state, started, finished, error)
        if decider is not None:
            code, number = decider.exit_code, decider.exit_signal
            ended = replace(ended, exit_code=code, exit_signal=number, deciding_task_id=decider.task_id)
        draft.put_job(ended)
        return_rules.let_go(draft, job_id, f"job ended ({state.word})")
        draft.check_settled(job_id)
        draft.effects += (JobChanged(job_id), JobEnded(job_id))
        hopeless = after_rules.follow_end(draft, ended)
        # At the bottom: a child ends with its parent rather than for this reason.
        ending[:0] = [(waiter, JobState.UNSCHEDULABLE, reason, None) for waiter, reason in hopeless]
        why = f"its parent {job_id} ended ({state.word}{': ' + error if error else ''})"
        children = () if keep_children else draft.view.children.get(job_id, ())
        keep_children = False  # only those of the first
        for child_id in children:
            child = draft.job(child_id)
            if not child.state.is_terminal:
                ending.append((child, JobState.KILLED, why, None))


def _times(draft: Draft, job: Job, state: JobState, decider: Task | None) -> tuple[int, int]:
    """Return when a job that ends now started (0: never) and ended, according to its tasks.

    A job that a stop or a limit ends, ends now.
    """
    tasks = list(draft.tasks_of(job.job_id)) if state is JobState.SUCCEEDED else [] if decider is None else [decider]
    began = job.started_at_ms or min((task.started_at_ms for task in tasks if task.started_at_ms), default=0)
    ended = max((task.finished_at_ms for task in tasks), default=0) or draft.now_ms
    # A worker that does not say how its clock stands may be off.
    began = max(began, job.submitted_at_ms) if began else 0
    return began, max(ended, began, job.submitted_at_ms)


def _end_tasks(draft: Draft, job_id: JobId, state: JobState, reason: str) -> None:
    end = TaskState.UNSCHEDULABLE if state is JobState.UNSCHEDULABLE else TaskState.KILLED
    for task in list(draft.tasks_of(job_id)):
        if task.state not in TERMINAL_TASK_STATES:
            kill(draft, task, end, reason)


def restart_with(draft: Draft, member: Task) -> None:
    """After one member of a gang must be retried, restart all others, including finished ones.

    Every member must take part in the next rendezvous. Only the failed member's retry counts.
    """
    why = _why(draft, member)
    for task in list(draft.tasks_of(member.job_id)):
        if task.index == member.index:
            continue
        if task.state in LIVE_TASK_STATES or task.state is TaskState.SUCCEEDED:
            was = "taken back" if task.state is TaskState.SUCCEEDED else "killed"
            requeue(draft, task, f"{was}: gang restarted because {why}", member.retry_at_ms)


def _why(draft: Draft, member: Task) -> str:
    """Return why a member must be retried, e.g. "task 0 lost worker w7: slice s2 preempted"."""
    before = draft.view.tasks[member.job_id][member.index]
    what = member.causes[-1].split(": ", 1)[-1] if member.causes else "unknown"
    if member.failures > before.failures:
        return f"task {member.index} failed on {before.worker_id}: {what}"
    return f"task {member.index} lost worker {before.worker_id}: {what}"
