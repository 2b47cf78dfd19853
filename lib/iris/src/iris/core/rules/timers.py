"""Timeouts of jobs: those that are due, and the next one."""

from iris.core.state.view import ClusterView
from iris.domain.events import TimedOut


def next_deadline(view: ClusterView) -> int | None:
    """Return the next timeout of a job (Unix ms); None when no job has one."""
    return view.deadlines.next_at()


def expired(view: ClusterView, now_ms: int) -> list[TimedOut]:
    """The events due at `now_ms`, earliest first; reducing and applying each takes it off the list."""
    return [TimedOut(job_id, what) for job_id, what in view.deadlines.due(now_ms)]
