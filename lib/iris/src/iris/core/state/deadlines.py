"""Tracks the next timeout of all jobs, without scans."""

import heapq

from iris.domain.entities import Job
from iris.domain.ids import JobId
from iris.domain.states import JobState, TimeoutKind

_Entry = tuple[int, int, JobId, TimeoutKind]  # at_ms, sequence of the job, its id, which limit


class Deadlines:
    """A heap of deadlines whose top entry is always valid."""

    __slots__ = ("_current", "_heap")

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._current: dict[JobId, _Entry] = {}

    def track(self, old: Job | None, new: Job, was_assigned: bool) -> None:
        """Record a job's change from `old` to `new`.

        Args:
            old: The job before; None if it was unknown.
            new: The job now.
            was_assigned: With `old` None: whether any task has had an attempt, which ends the scheduling timeout.
        """
        wanted = self._wanted(old, new, was_assigned)
        if wanted == self._current.get(new.spec.job_id):
            return
        if wanted is None:
            del self._current[new.spec.job_id]
        else:
            self._current[new.spec.job_id] = wanted
            heapq.heappush(self._heap, wanted)
        while self._heap and self._current.get(self._heap[0][2]) != self._heap[0]:
            heapq.heappop(self._heap)

    def _wanted(self, old: Job | None, new: Job, was_assigned: bool) -> _Entry | None:
        spec = new.spec
        if new.state.is_terminal:
            return None
        if new.started_at_ms:
            if not spec.timeout_ms:
                return None
            return (new.started_at_ms + spec.timeout_ms, new.sequence, spec.job_id, TimeoutKind.RUN)
        if not spec.scheduling_timeout_ms or new.state is not JobState.PENDING or new.waits:
            return None
        known = old is not None and old.sequence == new.sequence and not old.waits
        waits = spec.job_id in self._current if known else not was_assigned
        at_ms = max(new.submitted_at_ms, spec.start_at_ms, new.ready_at_ms) + spec.scheduling_timeout_ms
        return (at_ms, new.sequence, spec.job_id, TimeoutKind.SCHEDULING) if waits else None

    def next_at(self) -> int | None:
        """Return the earliest deadline in Unix ms, or None."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> list[tuple[JobId, TimeoutKind]]:
        """Return the deadlines at or before `now_ms`, earliest first, without a scan."""
        found: list[_Entry] = []
        nodes = [0]
        while nodes:
            node = nodes.pop()
            if node >= len(self._heap) or self._heap[node][0] > now_ms:
                continue
            entry = self._heap[node]
            if self._current.get(entry[2]) == entry:
                found.append(entry)
            nodes += (2 * node + 1, 2 * node + 2)
        return [(entry[2], entry[3]) for entry in sorted(set(found))]
