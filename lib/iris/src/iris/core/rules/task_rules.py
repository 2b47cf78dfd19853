"""Rules for one task when an attempt is assigned, reported or lost."""

from dataclasses import replace
from enum import Enum
from signal import Signals

from iris.core.rules.draft import Draft
from iris.core.rules.host_health import judge_host
from iris.core.rules.peer_rules import lost_peer
from iris.core.rules.retry_budget import may_retry, recent_failures, retry_delay_ms
from iris.core.state.prefill import check_prefill
from iris.domain.effects import ForgetAttempt, StartAttempt, StopAttempt
from iris.domain.entities import Stopping, Task
from iris.domain.events import Assigned, AttemptObserved, Begun
from iris.domain.job_spec import is_gang, waits_for_host
from iris.domain.resources import NOTHING
from iris.domain.states import LIVE_TASK_STATES, TERMINAL_TASK_STATES, FailureKind, TaskState
from iris.domain.usage import AttemptUse
from rigging.errors import Conflict, InvalidRequest, NotFound

_MAX_CAUSES = 100
_FIRST_CAUSES = 20


# Ends that are charged to the host, never to the user.
HOST_FAULTS = frozenset({FailureKind.WORKER, FailureKind.DEVICE, FailureKind.PREEMPTED, FailureKind.DISK})
# Of a host that cannot start it the next start comes later each time.
_BACKS_OFF = frozenset({FailureKind.WORKER, FailureKind.DISK})
_START_DELAY_MS = 1000


class Verdict(Enum):
    """The consequence of an attempt's end for the task's job."""

    NOTHING = "nothing"  # the report is stale or repeated
    MOVED = "moved"  # the task is in another live state, or succeeded
    RETRY = "retry"  # the task waits for its next attempt
    FINAL = "final"  # the task failed for good


def assign(draft: Draft, event: Assigned) -> Task:
    """Assign a pending task's next attempt to a worker, and start it.

    Raises:
        NotFound: The task or worker does not exist. Conflict: The worker is not connected or has too little capacity.
        IllegalTransition: The task is not pending.
    """
    view = draft.view
    task = view.task(event.task_id)
    worker = view.workers.get(event.worker_id)
    if worker is None:
        raise NotFound(f"worker {event.worker_id} does not exist")
    if not worker.connected:
        raise Conflict(f"worker {event.worker_id} is not connected; {event.task_id} cannot be assigned to it")
    if worker.is_late:
        raise Conflict(f"worker {event.worker_id} was not heard for two heartbeats; nothing can be assigned to it")
    if worker.trouble:
        raise Conflict(f"nothing can be assigned to worker {event.worker_id} at present: {worker.trouble}")
    if worker.cordon_reason:
        raise Conflict(f"worker {event.worker_id} is cordoned ({worker.cordon_reason}); nothing can be assigned to it")
    job, load = view.jobs[task.job_id], view.loads[event.worker_id]
    spec = job.spec
    if job.is_barred:
        raise Conflict(f"task {event.task_id} cannot start: its job is {job.hold or f'waiting for {job.waits}'}")
    if event.prefilled:
        check_prefill(event, spec, load)
    if load.gang_attempts and is_gang(spec) and load.gang_attempts.keys() != {task.job_id}:
        raise Conflict(f"worker {event.worker_id} has a gang; {event.task_id} of another gang cannot share it")
    lent = 0 if spec.reserve else load.lent_devices(task.job_id)
    if not event.prefilled and not load.has_room(spec.resources, worker.capacity, lent):
        raise Conflict(f"task {event.task_id} does not fit on worker {event.worker_id} any more")
    if task.job_id in view.held_counts:
        raise Conflict(f"task {event.task_id} cannot start while earlier attempts of its job are being stopped")
    new = Task(
        task.task_id,
        task.job_id,
        task.index,
        TaskState.ASSIGNED,
        task.next_attempt,
        event.worker_id,
        task.failures,
        task.preemptions,
        causes=task.causes,
        failure_times=task.failure_times,
    )
    draft.put_task(task, new)
    name = new.attempt_id
    if event.prefilled:
        draft.changes.prefilled[name] = True
    draft.effects.append(StartAttempt(name, event.worker_id, event.prefilled))
    return new


def begin(draft: Draft, event: Begun) -> None:
    """Start a prefilled attempt. A started or ended attempt is unchanged."""
    booking = draft.view.bookings.get(event.attempt_id)
    if booking is not None and booking.prefilled and not booking.stopping:
        draft.changes.prefilled[event.attempt_id] = False
        draft.effects.append(StartAttempt(event.attempt_id, booking.worker_id))


def observe(draft: Draft, event: AttemptObserved) -> tuple[Task | None, Verdict]:
    """Process a worker's report. Stale, repeated and out-of-order reports change nothing.

    Raises:
        InvalidRequest: A worker cannot report this state.
    """
    task, number = draft.view.find_attempt(event.attempt_id)
    current = (
        task is not None
        and task.attempt == number
        and task.worker_id == event.worker_id
        and task.state in LIVE_TASK_STATES
    )
    if task is not None and number >= draft.job(task.job_id).first_attempt:
        note_usage(draft, event, task.started_at_ms if current else 0)
    if task is None or not current:
        _observe_stale(draft, event, task)
        return task, Verdict.NOTHING
    return take_in(draft, task, event)


def note_usage(draft: Draft, event: AttemptObserved, began_at_ms: int = 0) -> None:
    """Store an attempt's resource use, if the report contains it.

    Args:
        draft: Receives the changes.
        event: The report.
        began_at_ms: When the attempt started to run (Unix ms); 0 for the report's value.
    """
    if event.usage is not None:
        began = began_at_ms or event.started_at_ms
        use = replace(event.usage, began_at_ms=_past(began, draft.now_ms) if began else 0)
        draft.changes.usage[event.attempt_id] = AttemptUse(event.worker_id, use)


def take_in(draft: Draft, task: Task, event: AttemptObserved) -> tuple[Task, Verdict]:
    """Process a report about a task's live attempt.

    Raises:
        InvalidRequest: A worker cannot report this state.
    """
    state = event.state
    if state is TaskState.BUILDING or state is TaskState.RUNNING:
        return _advance(draft, task, event)
    if state is TaskState.ASSIGNED:
        return task, Verdict.NOTHING  # it waits there for its turn
    if state is TaskState.PENDING:
        draft.effects.append(ForgetAttempt(event.attempt_id, event.worker_id))
        return lose(draft, task, event.error or "handed back by its worker before its start", is_charged=False)
    if state not in TERMINAL_TASK_STATES or state is TaskState.UNSCHEDULABLE:
        raise InvalidRequest(
            f"worker {event.worker_id} reports {event.attempt_id} as {state.word}, which a worker cannot observe"
        )
    draft.effects.append(ForgetAttempt(event.attempt_id, event.worker_id))
    judge_host(draft, event, task.state is TaskState.RUNNING)
    if state is TaskState.SUCCEEDED:
        return succeed(draft, task, event), Verdict.MOVED
    if event.failure_kind is FailureKind.PEER and (why := lost_peer(draft, task)):
        return lose(draft, task, f"{describe_end(event)}; {why}")
    if state is TaskState.FAILED and event.failure_kind not in HOST_FAULTS:
        return fail(draft, task, event)
    # KILLED without having been asked to is the worker's doing, like PREEMPTED and WORKER_FAILED.
    is_told = event.error or event.failure_kind in _WORDS
    if event.failure_kind in _BACKS_OFF and task.state is not TaskState.RUNNING:
        delay_ms = retry_delay_ms(_START_DELAY_MS, task.preemptions + 1, task.attempt_id)
        task = replace(task, retry_at_ms=draft.now_ms + delay_ms)
    return lose(draft, task, describe_end(event) if is_told else f"{state.word} by its worker")


def _observe_stale(draft: Draft, event: AttemptObserved, task: Task | None) -> None:
    name, worker_id = event.attempt_id, event.worker_id
    booking = draft.view.bookings.get(name)
    if event.state in TERMINAL_TASK_STATES or event.state is TaskState.PENDING:
        draft.effects.append(ForgetAttempt(name, worker_id))
        if name in draft.view.lost:
            draft.changes.lost[name] = None
        if booking is not None and booking.stopping and booking.worker_id == worker_id:
            draft.release(name, booking.job_id)
        return
    is_given_up = name in draft.view.lost  # it was withdrawn, not told to stop
    if booking is not None and booking.stopping and booking.worker_id == worker_id and not is_given_up:
        # It was told to stop; a lost message is repeated when the worker reconnects.
        if booking.held == NOTHING and event.state is not TaskState.ASSIGNED:
            whole = draft.job(booking.job_id).spec.resources  # it had begun before it heard
            draft.changes.stopping[name] = Stopping(booking.job_id, worker_id, whole, booking.found)
        return
    draft.effects.append(
        StopAttempt(name, worker_id, "this attempt has ended: another one replaced it, or its job ended")
    )
    worker = draft.view.workers.get(worker_id)
    if booking is None and worker is not None and worker.connected:
        known = draft.view.lost.get(name) or task
        if known is not None:
            draft.track_stray(name, known.job_id, worker_id)


def _advance(draft: Draft, task: Task, event: AttemptObserved) -> tuple[Task, Verdict]:
    if event.state is task.state or task.state is TaskState.RUNNING:
        return task, Verdict.NOTHING
    started = _past(event.started_at_ms or event.at_ms, draft.now_ms) if event.state is TaskState.RUNNING else 0
    new = Task(
        task.task_id,
        task.job_id,
        task.index,
        event.state,
        task.attempt,
        task.worker_id,
        task.failures,
        task.preemptions,
        started_at_ms=started,
        causes=task.causes,
        failure_times=task.failure_times,
        burnt=task.burnt,
    )
    draft.put_task(task, new)
    return new, Verdict.MOVED


def _past(at_ms: int, now_ms: int) -> int:
    """Return the time of a past event; now if the time is unknown (0) or in the future."""
    return min(at_ms or now_ms, now_ms)


def succeed(draft: Draft, task: Task, event: AttemptObserved) -> Task:
    """End a task with the success of its attempt `task.attempt`."""
    finished = max(_past(event.at_ms, draft.now_ms), task.started_at_ms)
    new = Task(
        task.task_id,
        task.job_id,
        task.index,
        TaskState.SUCCEEDED,
        task.attempt,
        task.worker_id,
        task.failures,
        task.preemptions,
        event.exit_code,
        event.exit_signal,
        event.error,  # nothing, or how much of its output is not in its log
        task.started_at_ms or min(event.started_at_ms or finished, finished),
        finished,
        task.causes,
        task.failure_times,
        task.burnt,
    )
    draft.put_task(task, new)
    return new


def fail(draft: Draft, task: Task, event: AttemptObserved) -> tuple[Task, Verdict]:
    """End an attempt that failed because of the user's code. Retry the task within `max_retries_failure`.

    Args:
        draft: Receives the changes.
        task: The task with its live attempt.
        event: The attempt's end.
    """
    error = describe_end(event)
    failures = task.failures + 1
    causes = _with_cause(task, error)
    spec = draft.job(task.job_id).spec
    window_ms, budget = spec.retry_window_ms, spec.max_retries_failure
    recent = recent_failures(task.failure_times, draft.now_ms, window_ms, budget + 1) if window_ms else ()
    if may_retry(recent, failures, window_ms, budget):
        delay_ms = retry_delay_ms(spec.retry_delay_ms, len(recent) if window_ms else failures, task.attempt_id)
        again = replace(task, failure_times=recent, retry_at_ms=draft.now_ms + delay_ms if delay_ms else 0)
        return _retry(draft, again, failures, task.preemptions, causes), Verdict.RETRY
    if window_ms:
        error = f"{error}; that is failure {len(recent)} within {window_ms / 1000:g} s, and {budget} are tried again"
    finished = max(_past(event.at_ms, draft.now_ms), task.started_at_ms)
    new = replace(
        task,
        state=TaskState.FAILED,
        failures=failures,
        exit_code=event.exit_code,
        exit_signal=event.exit_signal,
        error=error,
        started_at_ms=task.started_at_ms or min(event.started_at_ms or finished, finished),
        finished_at_ms=finished,
        causes=causes,
    )
    draft.put_task(task, new)
    return new, Verdict.FINAL


def lose(draft: Draft, task: Task, reason: str, is_charged: bool = True) -> tuple[Task, Verdict]:
    """End an attempt that its worker lost, or that was lost with it. Retry the task within `max_retries_preemption`.

    Args:
        draft: Receives the changes.
        task: The task with its live attempt.
        reason: Added to the task's causes.
        is_charged: Whether the loss counts as a retry; False if the attempt may not have started.
    """
    preemptions = task.preemptions + is_charged
    causes = _with_cause(task, reason)
    if preemptions <= draft.job(task.job_id).spec.max_retries_preemption:
        return _retry(draft, task, task.failures, preemptions, causes), Verdict.RETRY
    new = replace(
        task,
        state=TaskState.WORKER_FAILED,
        preemptions=preemptions,
        error=f"worker {task.worker_id}: {reason}",
        finished_at_ms=max(draft.now_ms, task.started_at_ms),
        causes=causes,
    )
    draft.put_task(task, new)
    return new, Verdict.FINAL


def evict(draft: Draft, task: Task, reason: str, is_charged: bool) -> tuple[Task, Verdict]:
    """Preempt a live attempt: stop it, and retry the task within `max_retries_preemption`.

    Args:
        draft: Receives the changes.
        task: The task with its live attempt.
        reason: Added to the task's causes.
        is_charged: Whether the preemption counts as a retry.
    """
    preemptions = task.preemptions + is_charged
    causes = _with_cause(task, reason)
    draft.stop_attempt(task, reason)
    if preemptions <= draft.job(task.job_id).spec.max_retries_preemption:
        return _retry(draft, task, task.failures, preemptions, causes), Verdict.RETRY
    finished = max(draft.now_ms, task.started_at_ms)
    new = replace(
        task, state=TaskState.PREEMPTED, preemptions=preemptions, error=reason, finished_at_ms=finished, causes=causes
    )
    draft.put_task(task, new)
    return new, Verdict.FINAL


def kill(draft: Draft, task: Task, state: TaskState, reason: str) -> None:
    """End a live or pending task. Change its state immediately, and stop its attempt, if any.

    Args:
        draft: Receives the changes.
        task: A task that has not ended.
        state: The terminal state.
        reason: The task's error text.
    """
    causes = task.causes
    if task.state in LIVE_TASK_STATES:
        causes = _with_cause(task, f"stopped: {reason}")
        draft.stop_attempt(task, reason)
        state = TaskState.KILLED
    ended = Task(  # not `replace`: a job of 100,000 tasks is stopped in one turn
        task.task_id,
        task.job_id,
        task.index,
        state,
        task.attempt,
        task.worker_id,
        task.failures,
        task.preemptions,
        task.exit_code,
        task.exit_signal,
        reason,
        task.started_at_ms,
        max(draft.now_ms, task.started_at_ms),
        causes,
        task.failure_times,
        task.burnt,
        task.retry_at_ms,
    )
    draft.put_task(task, ended)


def requeue(draft: Draft, task: Task, reason: str, retry_at_ms: int = 0) -> None:
    """Restart a member of a gang without counting a retry. Stop a live attempt.

    Args:
        draft: Receives the changes.
        task: A member of a gang.
        reason: Added to the task's causes.
        retry_at_ms: When the failed member may start again (Unix ms).
    """
    waits = waits_for_host(draft.job(task.job_id).spec)
    if task.worker_id and task.state is TaskState.RUNNING and not waits and draft.is_out_of_reach(task.worker_id):
        # It cannot be told, and may have its task back with the rest of its gang.
        draft.give_up_wanted(task.attempt_id, task.worker_id, is_charged=False)
    elif task.state in LIVE_TASK_STATES:
        draft.stop_attempt(task, reason)
    again = replace(task, retry_at_ms=retry_at_ms)
    _retry(draft, again, task.failures, task.preemptions, _with_cause(task, reason))


def _retry(draft: Draft, task: Task, failures: int, preemptions: int, causes: tuple[str, ...]) -> Task:
    """Make the task wait for its next attempt, at least until its `retry_at_ms`."""
    new = Task(
        task.task_id,
        task.job_id,
        task.index,
        TaskState.PENDING,
        task.attempt,
        None,
        failures,
        preemptions,
        causes=causes,
        failure_times=task.failure_times,
        burnt=task.burnt,
        retry_at_ms=task.retry_at_ms,
    )
    draft.put_task(task, new)
    return new


def _with_cause(task: Task, what: str) -> tuple[str, ...]:
    causes = task.causes
    if len(causes) >= _MAX_CAUSES:  # the numbers in the lines show the gap
        causes = causes[:_FIRST_CAUSES] + causes[_FIRST_CAUSES + 1 :]
    return (*causes, f"attempt {task.attempt} on {task.worker_id}: {what}")


_WORDS = {
    FailureKind.OOM: "out of memory",
    FailureKind.ENVIRONMENT: "the environment could not be built",
    FailureKind.START: "the command could not be started",
    FailureKind.DEVICE: "device error",
    FailureKind.PREEMPTED: "the platform preempted the host",
    FailureKind.DISK: "the host's disk was full",
    FailureKind.PEER: "another member of the gang was gone",
}


def describe_end(event: AttemptObserved) -> str:
    """Return why an attempt ended: the worker's message, or its exit code or signal."""
    if event.error:
        return event.error
    if event.failure_kind in _WORDS:
        return _WORDS[event.failure_kind]
    if event.exit_signal:
        try:
            return f"killed by {Signals(event.exit_signal).name}"
        except ValueError:
            return f"killed by signal {event.exit_signal}"
    return f"exit code {event.exit_code}"
