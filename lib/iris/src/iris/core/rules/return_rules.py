"""Rules for returned attempts: lost attempts whose workers reconnect. They become current again, unless a successor has
started.

An unreachable host may continue its work. When its worker reconnects, the controller asks the successor's worker to
hand the successor back. A successor that has started stays, unless the original had already succeeded. The successor's
number is never reused. A gang is restored as a whole, when all attempts of one round have returned.
"""

from collections.abc import Iterator
from typing import Final

from iris.core.rules.draft import Draft
from iris.core.rules.task_rules import Verdict, note_usage, succeed, take_in
from iris.domain.effects import ForgetAttempt, StopAttempt, WithdrawAttempt
from iris.domain.entities import LostAttempt, Stopping, Task
from iris.domain.events import AttemptObserved
from iris.domain.ids import AttemptId, JobId, attempt_id, parse_attempt_id
from iris.domain.job_spec import is_gang
from iris.domain.states import LIVE_TASK_STATES, TaskState

_GOES_ON: Final = frozenset({TaskState.RUNNING, TaskState.SUCCEEDED})
"""States of returned attempts that may become current again. FAILED is not one: the attempt may have failed because its
cluster was missing.
"""
_NOT_BEGUN: Final = frozenset({TaskState.ASSIGNED, TaskState.BUILDING})


def hear(draft: Draft, event: AttemptObserved) -> tuple[Task, Verdict] | None:
    """Process a report of a lost attempt. Return None if the attempt can no longer become current."""
    name = event.attempt_id
    lost = draft.view.lost.get(name)
    if lost is None or not lost.may_return or lost.worker_id != event.worker_id or event.state not in _GOES_ON:
        return None
    task, number = draft.view.find_attempt(name)
    if task is None:
        return None
    job = draft.job(task.job_id)
    is_current = task.attempt == number and task.state in LIVE_TASK_STATES
    if is_current or task.state.is_terminal or number < job.first_attempt:
        return None
    if is_gang(job.spec):
        members = list(draft.tasks_of(task.job_id))
        if any(member.state is TaskState.RUNNING for member in members) or not _is_round_lost(draft, members, number):
            return None
    else:
        members = [task]
        if task.state is TaskState.RUNNING:
            return _outrun(draft, task, number, event) if event.state is TaskState.SUCCEEDED else None
    note_usage(draft, event)
    draft.changes.returned[name] = event
    if event.state is TaskState.RUNNING:
        draft.changes.stopping[name] = Stopping(task.job_id, event.worker_id, lost.resources, found=True)
    elif name in draft.view.bookings:
        draft.release(name, task.job_id)
    if not all(_heard(draft, attempt_id(member.task_id, number)) for member in members):
        return task, Verdict.NOTHING
    waiting = [member for member in members if member.state in _NOT_BEGUN]
    for member in waiting:
        assert member.worker_id is not None
        draft.effects.append(WithdrawAttempt(member.attempt_id, member.worker_id))
    return (None if waiting else take_back(draft, task)) or (task, Verdict.NOTHING)


def take_back(draft: Draft, task: Task) -> tuple[Task, Verdict] | None:
    """Make a returned attempt current for a waiting task and its gang. Return None if there is none.

    Returns:
        The new task, and the consequence for its job.
    """
    view = draft.view
    if not (view.returned or draft.changes.returned) or task.state is not TaskState.PENDING:
        return None
    mine = [name for name in _returned(draft, task.job_id) if name.startswith(f"{task.task_id}:")]
    if not mine:
        return None
    number = max(parse_attempt_id(name)[1] for name in mine)
    members = list(draft.tasks_of(task.job_id)) if is_gang(draft.job(task.job_id).spec) else [task]
    events = [_heard(draft, attempt_id(member.task_id, number)) for member in members]
    if any(member.state is not TaskState.PENDING for member in members) or not all(events):
        return None
    if any(_is_on_its_way_out(draft, member) for member in members):
        return None  # asked again once it has ended
    burnt = max(member.next_attempt - 1 for member in members)
    outcome = None
    for member, event in zip(members, events, strict=True):
        assert event is not None
        back = _give_back(draft, member, number, event, burnt)
        if member.index == task.index:
            outcome = back
    return outcome


def returned_tasks(draft: Draft) -> Iterator[Task]:
    """Yield the waiting tasks with a returned attempt."""
    for name in list(draft.view.returned):
        found, _ = draft.view.find_attempt(name)
        if found is not None:
            task = draft.task(found.job_id, found.index)
            if task.state is TaskState.PENDING:
                yield task


def _is_on_its_way_out(draft: Draft, task: Task) -> bool:
    for number in {task.attempt, task.burnt}:
        name = attempt_id(task.task_id, number)
        booking = draft.view.bookings.get(name)
        if name in draft.changes.stopping:
            stopping = draft.changes.stopping[name]
            if stopping is not None and not stopping.found:
                return True
        elif booking is not None and booking.stopping and not booking.found:
            return True
    return False


def follow(draft: Draft, task: Task) -> None:
    """Process a report of a task's current attempt: if it has started or ended, stop the task's returned attempts.

    Otherwise repeat the request to hand it back, because the first may be lost with a session.
    """
    index = None if is_gang(draft.job(task.job_id).spec) else task.index
    if task.state not in _NOT_BEGUN:
        if task.state is not TaskState.PENDING:
            let_go(draft, task.job_id, f"its successor {task.attempt_id} has started", index)
    elif task.worker_id is not None and _claims(draft, task.job_id, index):
        draft.effects.append(WithdrawAttempt(task.attempt_id, task.worker_id))


def let_go(draft: Draft, job_id: JobId, why: str, index: int | None = None) -> None:
    """Stop the returned attempts of a job, or of one task."""
    for name in _claims(draft, job_id, index) if draft.view.returned else ():
        draft.changes.returned[name] = None
        draft.effects.append(StopAttempt(name, draft.view.lost[name].worker_id, why))


def _claims(draft: Draft, job_id: JobId, index: int | None) -> list[AttemptId]:
    end = "" if index is None else f"/{index}"
    return [name for name in _returned(draft, job_id) if parse_attempt_id(name)[0].endswith(end)]


def _outrun(draft: Draft, task: Task, number: int, event: AttemptObserved) -> tuple[Task, Verdict]:
    """Handle an original that succeeded while its successor runs: accept its success, and stop the successor."""
    name = event.attempt_id
    draft.stop_attempt(task, f"the earlier attempt {name} has succeeded")
    draft.changes.endpoints.update(dict.fromkeys(draft.view.endpoints.of_attempt(task.attempt_id)))
    draft.effects.append(ForgetAttempt(name, event.worker_id))
    _settle(draft, name, task.job_id)
    note_usage(draft, event)
    original = Task(
        task.task_id,
        task.job_id,
        task.index,
        task.state,
        number,
        event.worker_id,
        task.failures,
        task.preemptions,
        started_at_ms=event.started_at_ms,
        causes=task.causes,
        failure_times=task.failure_times,
        burnt=task.next_attempt - 1,
    )
    return succeed(draft, original, event), Verdict.MOVED


def _give_back(draft: Draft, task: Task, number: int, event: AttemptObserved, burnt: int) -> tuple[Task, Verdict]:
    lost: LostAttempt = draft.view.lost[event.attempt_id]
    back = Task(
        task.task_id,
        task.job_id,
        task.index,
        TaskState.ASSIGNED,
        number,
        lost.worker_id,
        task.failures,
        max(task.preemptions - lost.is_charged, 0),
        causes=tuple(line for line in task.causes if not line.startswith(f"attempt {number} on ")),
        failure_times=task.failure_times,
        burnt=burnt,
    )
    draft.put_task(task, back)
    _settle(draft, event.attempt_id, task.job_id)
    if event.state is TaskState.RUNNING:
        draft.changes.endpoints.update({endpoint.endpoint_id: endpoint for endpoint in lost.endpoints})
    return take_in(draft, back, event)


def _settle(draft: Draft, name: AttemptId, job_id: JobId) -> None:
    draft.changes.lost[name] = None
    draft.changes.returned[name] = None
    if name in draft.view.bookings or draft.changes.stopping.get(name) is not None:
        draft.release(name, job_id)


def _is_round_lost(draft: Draft, members: list[Task], number: int) -> bool:
    """Return whether every attempt of one round of a gang was lost, and none had been stopped."""
    names = (attempt_id(member.task_id, number) for member in members)
    found = (draft.view.lost.get(name) for name in names)
    return all(lost is not None and lost.may_return for lost in found)


def _heard(draft: Draft, name: AttemptId) -> AttemptObserved | None:
    if name in draft.changes.returned:
        return draft.changes.returned[name]
    return None if draft.changes.lost.get(name, True) is None else draft.view.returned.get(name)


def _returned(draft: Draft, job_id: JobId) -> list[AttemptId]:
    names = {**draft.view.returned, **draft.changes.returned}
    return [
        name for name in names if (lost := draft.view.lost.get(name)) and lost.job_id == job_id and _heard(draft, name)
    ]
