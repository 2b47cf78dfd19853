"""Timeouts of jobs: those that are due, and the next one."""

from iris.core.state.view import ClusterView
from iris.domain.events import RetryDue, TimedOut


def next_deadline(view: ClusterView) -> int | None:
    """Return the next timeout of a job or retry of a task (Unix ms); None when there is none."""
    known = (view.deadlines.next_at(), view.delays.next_at())
    return min((at_ms for at_ms in known if at_ms is not None), default=None)


def expired(view: ClusterView, now_ms: int) -> list[TimedOut | RetryDue]:
    """The events due at `now_ms`, earliest first; reducing and applying each takes it off the list."""
    timeouts = [TimedOut(job_id, what) for job_id, what in view.deadlines.due(now_ms)]
    return [*timeouts, *map(RetryDue, view.delays.due(now_ms))]
