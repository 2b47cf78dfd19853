"""The scheduling order of jobs: by band, then by the user's recent usage (least first), then by age (oldest first).

A few gangs that have waited long come first in a band, so that smaller work cannot starve them.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from iris.core.state.view import ClusterView
from iris.domain.ids import JobId, user_of
from iris.domain.states import PriorityBand
from iris.sched.reserve import MAX_RESERVED, RESERVE_AFTER_MS

# Among several users, how many tasks of one job are placed before the next user has a turn.
_TURN_TASKS: Final = 8
_NO_LIMIT: Final = 1 << 60
# A task that is placed counts as if it had run for so long already, so that the turns of one round are fair too.
_ASSUMED_RUN_MS: Final = 3600 * 1000


_Queued = tuple[int, int, JobId]  # an entry of ClusterView.queue


class JobTurn:
    """A job's turn. The round sets `placed_weight` and `is_done`.

    Attributes:
        limit: Maximum number of tasks to place.
        placed_weight: The weight of the placed tasks.
        is_done: Whether no more of the job's tasks can be placed in this round.
    """

    __slots__ = ("band", "is_done", "job_id", "limit", "placed_weight")

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
        return self


def turns(view: ClusterView, now_ms: int) -> Iterator[JobTurn]:
    """Yield jobs with pending tasks in scheduling order. A job may have several turns.

    Users over budget are in the batch band. Answer each turn before taking the next.
    """
    if len(view.waiting_users) == 1 and not view.budgets and not view.waiting_gangs:
        yield from _of_one_user(view)
        return
    bands: dict[PriorityBand, dict[str, list[_Queued]]] = {band: {} for band in PriorityBand}
    over = _over_budget(view)
    aged = _aged_gangs(view, over, now_ms)
    served = {int(band): users for band, users in bands.items()}
    batch = bands[PriorityBand.BATCH]
    for entry in view.queue:
        if entry[2] in aged:
            continue
        user = user_of(entry[2])
        users = batch if user in over else served[entry[0]]
        jobs = users.get(user)
        if jobs is None:
            jobs = users[user] = []
        jobs.append(entry)
    for band, users in bands.items():
        first = JobTurn(band, _NO_LIMIT)
        for job_id, theirs in aged.items():
            if theirs is band:
                yield first.of(job_id)
        if not users:
            continue
        if over and band is PriorityBand.BATCH:
            for jobs in users.values():
                jobs.sort(key=lambda entry: entry[1])
        if len(users) == 1:
            turn = JobTurn(band, _NO_LIMIT)
            for jobs in users.values():
                for entry in jobs:
                    yield turn.of(entry[2])
        else:
            yield from _fair(view, band, users, now_ms)


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


def _of_one_user(view: ClusterView) -> Iterator[JobTurn]:
    by_number = {int(band): JobTurn(band, _NO_LIMIT) for band in PriorityBand}
    for band, _, job_id in view.queue:
        yield by_number[band].of(job_id)


def _fair(view: ClusterView, band: PriorityBand, users: dict[str, list[_Queued]], now_ms: int) -> Iterator[JobTurn]:
    heap: list[tuple[float, int, str]] = []
    for user, jobs in users.items():
        heap.append((view.usage.use(user, now_ms), jobs[0][1], user))
        jobs.reverse()
    heapify(heap)
    turn = JobTurn(band, _TURN_TASKS)
    while heap:
        use, _, user = heappop(heap)
        jobs = users[user]
        while jobs:
            yield turn.of(jobs[-1][2])
            if turn.is_done:
                jobs.pop()
            if turn.placed_weight:
                use += turn.placed_weight * _ASSUMED_RUN_MS
                break
        if jobs:
            heappush(heap, (use, jobs[-1][1], user))


def _aged_gangs(view: ClusterView, over: frozenset[str], now_ms: int) -> dict[JobId, PriorityBand]:
    """Return gangs that have waited long, oldest first: one per user, a few per band."""
    found: dict[JobId, PriorityBand] = {}
    if not view.waiting_gangs:
        return found
    jobs = [view.jobs[job_id] for job_id in view.waiting_gangs]
    old = [job for job in jobs if now_ms - job.submitted_at_ms >= RESERVE_AFTER_MS]
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


def _over_budget(view: ClusterView) -> frozenset[str]:
    return frozenset(
        user
        for user, budget in view.budgets.items()
        if budget.max_weight and view.usage.held(user) >= budget.max_weight
    )
