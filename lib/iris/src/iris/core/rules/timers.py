"""Which limits of jobs run out, and when to look again."""

from iris.core.state.view import ClusterView
from iris.domain.events import TimedOut


def next_deadline(view: ClusterView) -> int | None:
    """When the next limit of a job runs out (Unix ms), or None when no job has one."""
    return view.deadlines.next_at()


def expired(view: ClusterView, now_ms: int) -> list[TimedOut]:
    """The events due at `now_ms`, earliest first; reducing and applying each takes it off the list."""
    return [TimedOut(job_id, what) for job_id, what in view.deadlines.due(now_ms)]
