"""The live children of each job, the jobs that wait for it, and each user's number of live root jobs by state."""

from iris.core.state.bookings import count
from iris.domain.entities import Job
from iris.domain.ids import JobId, parent_of, user_of
from iris.domain.job_spec import awaited
from iris.domain.states import JobState

_NONE: dict[JobState, int] = {}


class Families:
    """Indexes over the names of jobs, updated with every change of a job.

    Attributes:
        children: Live children of each job that has any, oldest first.
        waiters: The jobs that wait for each job that any waits for (`Job.waits`).
    """

    def __init__(self) -> None:
        self.children: dict[JobId, dict[JobId, None]] = {}
        self.waiters: dict[JobId, dict[JobId, None]] = {}
        self._roots: dict[str, dict[JobState, int]] = {}

    def roots_of(self, user: str) -> dict[JobState, int]:
        """Return the number of a user's live jobs without a parent in each state, without zeros."""
        return self._roots.get(user, _NONE)

    def move(self, job_id: JobId, known: Job | None, job: Job | None) -> None:
        """Record a job's change; None for a job that did not exist before, or is removed."""
        if known is not None and job is not None and known.state is job.state and known.waits == job.waits:
            return
        before, after = _live_state(known), _live_state(job)
        if before is not after:
            parent = parent_of(job_id)
            if parent is None:
                self._move_root(user_of(job_id), before, after)
            else:
                _set(self.children, parent, job_id, after is not None)
        waited, waits = "" if known is None else known.waits, "" if job is None else job.waits
        if waited != waits:
            for name in awaited(waited).keys() ^ awaited(waits).keys():
                _set(self.waiters, name, job_id, name in awaited(waits))

    def _move_root(self, user: str, before: JobState | None, after: JobState | None) -> None:
        counts = self._roots.setdefault(user, {})
        if before is not None:
            count(counts, before, -1)
        if after is not None:
            count(counts, after, 1)
        if not counts:
            del self._roots[user]


def _live_state(job: Job | None) -> JobState | None:
    return None if job is None or job.state.is_terminal else job.state


def _set(index: dict[JobId, dict[JobId, None]], name: JobId, member: JobId, is_member: bool) -> None:
    members = index.setdefault(name, {})
    if is_member:
        members[member] = None
    else:
        members.pop(member, None)
    if not members:
        del index[name]
