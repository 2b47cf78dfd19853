"""Apply an event to the cluster: the only way to change its state."""

from typing import assert_never

from iris.core.rules import endpoint_rules, job_rules, return_rules, silence_rules, task_rules, worker_rules
from iris.core.rules.draft import Draft
from iris.core.state.changes import Changes, Reduction
from iris.core.state.view import ClusterView
from iris.domain.events import (
    Assigned,
    AttemptFenced,
    AttemptMissing,
    AttemptObserved,
    Begun,
    BudgetSet,
    EndpointRegistered,
    EndpointRemoved,
    Event,
    JobHeld,
    JobReleased,
    JobSubmitted,
    JobUpdated,
    LendCpu,
    Preempted,
    RetryDue,
    StopRequested,
    TimedOut,
    WorkerConnected,
    WorkerCordoned,
    WorkerDisconnected,
    WorkerGone,
    WorkerHeard,
    WorkerLate,
    WorkerLost,
    WorkerResized,
    WorkerTroubled,
    WorkerUncordoned,
)

__all__ = ["Changes", "Reduction", "reduce"]


def reduce(view: ClusterView, event: Event, now_ms: int) -> Reduction:
    """Return the changes and effects of `event`. The view is read, never modified.

    Apply the outcome to the view before reducing the next event. Carry out its effects after the commit.

    Args:
        view: The cluster before the event.
        event: The event.
        now_ms: Unix ms.

    Raises:
        MarinError: The event is refused and changes nothing: AlreadyExists, NotFound, Conflict or InvalidRequest.
    """
    draft = Draft(view, now_ms)
    match event:
        case AttemptObserved():
            heard = return_rules.hear(draft, event) if view.lost else None
            task, verdict = heard or task_rules.observe(draft, event)
            if task is not None:
                if view.returned and heard is None:
                    return_rules.follow(draft, task)
                job_rules.follow_task(draft, task, verdict)
        case Assigned():
            job_rules.follow_task(draft, task_rules.assign(draft, event), task_rules.Verdict.MOVED)
        case Begun():
            task_rules.begin(draft, event)
        case JobSubmitted():
            job_rules.submit(draft, event)
        case StopRequested():
            job_rules.stop(draft, event)
        case JobHeld():
            job_rules.hold(draft, event)
        case JobReleased():
            job_rules.release(draft, event)
        case JobUpdated():
            job_rules.update(draft, event)
        case TimedOut():
            job_rules.time_out(draft, event)
        case RetryDue():
            draft.changes.due.append(event.task_id)
        case AttemptMissing():
            worker_rules.miss(draft, event)
        case LendCpu():
            worker_rules.lend(draft, event)
        case WorkerConnected():
            worker_rules.connect(draft, event)
        case WorkerResized():
            worker_rules.resize(draft, event)
        case WorkerTroubled():
            worker_rules.be_troubled(draft, event)
        case WorkerDisconnected():
            worker_rules.disconnect(draft, event)
        case WorkerLate():
            silence_rules.be_late(draft, event)
        case WorkerHeard():
            silence_rules.be_heard(draft, event)
        case WorkerLost():
            silence_rules.lose_worker(draft, event)
        case WorkerGone():
            silence_rules.be_gone(draft, event)
        case AttemptFenced():
            silence_rules.fence(draft, event)
        case Preempted():
            worker_rules.preempt(draft, event)
        case WorkerCordoned():
            worker_rules.cordon(draft, event)
        case WorkerUncordoned():
            worker_rules.uncordon(draft, event)
        case BudgetSet():
            draft.changes.budgets[event.budget.user] = event.budget
        case EndpointRegistered():
            endpoint_rules.register(draft, event)
        case EndpointRemoved():
            endpoint_rules.remove(draft, event)
        case _:
            assert_never(event)
    if view.returned:
        job_rules.take_back_returned(draft)
    return draft.finish()


def next_deadline(view: ClusterView) -> int | None:
    """Return the next timeout of a job or retry of a task (Unix ms), or None."""
    known = (view.deadlines.next_at(), view.delays.next_at())
    return min((at_ms for at_ms in known if at_ms is not None), default=None)


def expired(view: ClusterView, now_ms: int) -> list[TimedOut | RetryDue]:
    """Return the events due at `now_ms`, earliest first. Reduce and apply each, so that the next call omits it."""
    timeouts = [TimedOut(job_id, what) for job_id, what in view.deadlines.due(now_ms)]
    return [*timeouts, *map(RetryDue, view.delays.due(now_ms))]
