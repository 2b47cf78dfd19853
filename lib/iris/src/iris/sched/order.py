"""The scheduling order of jobs: by band, then by the user's recent usage (least first), then by age (oldest first).

A few gangs that have waited long come first in a band, so that smaller work cannot starve them.
"""

from collections.abc import Container, Iterator
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import Final

from iris.core.state.view import ClusterView
from iris.domain.ids import JobId, user_of
from iris.domain.states import PriorityBand
from iris.sched.reserve import MAX_RESERVED, has_live, is_old

# Among several users, how many tasks of one job are placed before the next user has a turn.
_TURN_TASKS: Final = 8
_NO_LIMIT: Final = 1 << 60
# A task that is placed counts as if it had run for so long already, so that the turns of one round are fair too.
_ASSUMED_RUN_MS: Final = 3600 * 1000


class Rest(IntEnum):
    """Which of the jobs of the same kind have a turn in this round after the one that just had its own."""

    ALL = 0
    RESERVING = 1
    """Only those that have waited long without running tasks."""
    NONE = 2


class JobTurn:
    """A job's turn. The round sets the attributes as its answer.

    Attributes:
        limit: Maximum number of tasks to place. placed_weight: The weight of the placed tasks.
        is_done: Whether no more of the job's tasks can be placed in this round. rest: What holds for its kind.
    """

    __slots__ = ("band", "is_done", "job_id", "limit", "placed_weight", "rest")

    def __init__(self, band: PriorityBand, limit: int) -> None:
        self.band = band
        self.limit = limit

    def of(self, job_id: JobId) -> "JobTurn":
        """Reset the turn for another job and return it. A whole band reuses one object, because there may be many
        jobs.
        """
        self.job_id = job_id
        self.placed_weight = 0.0
        self.is_done = True
        self.rest = Rest.ALL
        return self


class _Line:
    """One user's jobs of a band, oldest first, merged from their kinds."""

    def __init__(self, view: ClusterView, now_ms: int, without: Container[JobId]) -> None:
        self._view = view
        self._now_ms = now_ms
        self._without = without
        self._heads: list[tuple[int, int, list[tuple[int, JobId]]]] = []  # sequence, place, jobs of the kind

    def add(self, jobs: list[tuple[int, JobId]]) -> None:
        """Add the jobs of a kind."""
        self._push(jobs, 0)

    def __bool__(self) -> bool:
        return bool(self._heads)

    @property
    def sequence(self) -> int:
        """Return the sequence of the first job."""
        return self._heads[0][0]

    @property
    def first(self) -> JobId:
        """Return the first job."""
        _, place, jobs = self._heads[0]
        return jobs[place][1]

    def advance(self, rest: Rest) -> None:
        """Remove the first job, and those of its kind that have no turn."""
        _, place, jobs = heappop(self._heads)
        place += 1
        if rest is Rest.RESERVING:
            while place < len(jobs) and is_old(job := self._view.jobs[jobs[place][1]], self._now_ms):
                if not has_live(job):
                    break
                place += 1
            else:
                return
        if rest is not Rest.NONE:
            self._push(jobs, place)

    def _push(self, jobs: list[tuple[int, JobId]], place: int) -> None:
        while place < len(jobs) and jobs[place][1] in self._without:
            place += 1
        if place < len(jobs):
            heappush(self._heads, (jobs[place][0], place, jobs))


def turns(view: ClusterView, now_ms: int) -> Iterator[JobTurn]:
    """Yield jobs with pending tasks in scheduling order. A job may have several turns.

    Users over budget are in the batch band. Answer each turn before taking the next.
    """
    over = over_budget(view)
    aged = _aged_gangs(view, over, now_ms)
    bands: dict[PriorityBand, dict[str, _Line]] = {band: {} for band in aged.values()}
    for user, kinds in view.waiting_kinds.by_user.items():
        for kind, jobs in kinds.items():
            lines = bands.setdefault(PriorityBand.BATCH if user in over else kind[0], {})
            if user not in lines:
                lines[user] = _Line(view, now_ms, aged)
            lines[user].add(jobs)
    for band in sorted(bands):
        first = JobTurn(band, _NO_LIMIT)
        for job_id, theirs in aged.items():
            if theirs is band:
                yield first.of(job_id)
        yield from _fair(view, band, {user: line for user, line in bands[band].items() if line}, now_ms)


def places(view: ClusterView, now_ms: int) -> dict[JobId, tuple[int, int]]:
    """Return each pending job's place in the queue of its band, from 1, and the length of the queue.

    The order is that of a round in which all jobs fit.
    """
    order: dict[PriorityBand, dict[JobId, int]] = {band: {} for band in PriorityBand}
    for turn in turns(view, now_ms):
        job_id, served = turn.job_id, order[turn.band]
        left = len(view.pending[job_id]) - served.get(job_id, 0)
        count = min(turn.limit, left)
        served[job_id] = served.get(job_id, 0) + count
        turn.placed_weight = view.demands[job_id].weight * count
        turn.is_done = count == left
    return {job_id: (place, len(served)) for served in order.values() for place, job_id in enumerate(served, start=1)}


def _fair(view: ClusterView, band: PriorityBand, lines: dict[str, _Line], now_ms: int) -> Iterator[JobTurn]:
    heap = [(view.usage.use(user, now_ms), line.sequence, user) for user, line in lines.items()]
    heapify(heap)
    turn = JobTurn(band, _TURN_TASKS if len(lines) > 1 else _NO_LIMIT)
    while heap:
        use, _, user = heappop(heap)
        line = lines[user]
        while line:
            yield turn.of(line.first)
            if turn.is_done:
                line.advance(turn.rest)
            if turn.placed_weight:
                use += turn.placed_weight * _ASSUMED_RUN_MS
                break
        if line:
            heappush(heap, (use, line.sequence, user))


def _aged_gangs(view: ClusterView, over: frozenset[str], now_ms: int) -> dict[JobId, PriorityBand]:
    """Return gangs that have waited long, oldest first: one per user, a few per band."""
    found: dict[JobId, PriorityBand] = {}
    if not view.waiting_gangs:
        return found
    jobs = [view.jobs[job_id] for job_id in view.waiting_gangs]
    old = [job for job in jobs if is_old(job, now_ms)]
    users: set[tuple[PriorityBand, str]] = set()
    places = dict.fromkeys(PriorityBand, MAX_RESERVED)
    for job in sorted(old, key=lambda job: job.sequence):
        job_id = job.spec.job_id
        user = user_of(job_id)
        band = PriorityBand.BATCH if user in over else job.spec.band
        if places[band] and (band, user) not in users:
            places[band] -= 1
            users.add((band, user))
            found[job_id] = band
    return found


def over_budget(view: ClusterView) -> frozenset[str]:
    """Return the users whose jobs run as batch, because they hold as much as their budget allows."""
    return frozenset(
        user
        for user, budget in view.budgets.items()
        if budget.max_weight and view.usage.held(user) >= budget.max_weight
    )
