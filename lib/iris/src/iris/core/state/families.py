"""The live children of each job, and the number of each user's live root jobs by state."""

from iris.core.state.bookings import count
from iris.domain.ids import JobId, parent_of, user_of
from iris.domain.states import JobState

_NONE: dict[JobState, int] = {}


class Families:
    """Indexes over the names of jobs, updated with every change of a job's state.

    Attributes:
        children: Live children of each job that has any, oldest first.
    """

    def __init__(self) -> None:
        self.children: dict[JobId, dict[JobId, None]] = {}
        self._roots: dict[str, dict[JobState, int]] = {}

    def roots_of(self, user: str) -> dict[JobState, int]:
        """Return the number of a user's live jobs without a parent in each state, without zeros."""
        return self._roots.get(user, _NONE)

    def move(self, job_id: JobId, before: JobState | None, after: JobState | None) -> None:
        """Record a job's change of state; None for a job that did not exist before, or is removed."""
        if before is after:
            return
        before = None if before is not None and before.is_terminal else before
        after = None if after is not None and after.is_terminal else after
        parent = parent_of(job_id)
        if parent is None:
            self._move_root(user_of(job_id), before, after)
        else:
            self._set_child(parent, job_id, after is not None)

    def _move_root(self, user: str, before: JobState | None, after: JobState | None) -> None:
        counts = self._roots.setdefault(user, {})
        if before is not None:
            count(counts, before, -1)
        if after is not None:
            count(counts, after, 1)
        if not counts:
            del self._roots[user]

    def _set_child(self, parent: JobId, job_id: JobId, live: bool) -> None:
        if live:
            self.children.setdefault(parent, {})[job_id] = None
            return
        siblings = self.children.get(parent)
        if siblings is not None:
            siblings.pop(job_id, None)
            if not siblings:
                del self.children[parent]
