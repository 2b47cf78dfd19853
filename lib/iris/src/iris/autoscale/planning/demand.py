"""Counts what pending jobs need that the scheduler's round has not placed, by kind of request. Pure."""

from dataclasses import dataclass, field, replace
from typing import Final

from iris.core.state import booking
from iris.core.state.kinds import JobKind, kind_of
from iris.core.state.view import ClusterView
from iris.domain.constraints import Constraint
from iris.domain.ids import JobId, WorkerId, parent_of, user_of
from iris.domain.resources import Resources
from iris.domain.scale_groups import tasks_on
from iris.domain.states import PriorityBand
from iris.sched.fit import Host, may_run_on
from iris.sched.gang import gang_shape
from iris.sched.order import Rest, turns
from iris.sched.running_limit import RunningLimit

_MOST_NAMED: Final = 16
_MOST_TASKS: Final = 100_000
"""Further tasks of a kind are not counted: no cluster starts that many at once."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Pending tasks with equal needs, which wait for capacity and nothing else.

    Args:
        need: The resources of a task.
        constraints: The constraints on a task's host.
        tasks: The number of tasks; of gangs, a multiple of `gang_size * gang_slices`.
        gang_size: The tasks that need one slice for themselves; 0 for tasks that are placed singly.
        gang_slices: The slices that a gang needs at the same time.
        group_by: The attribute that a gang's hosts share.
        jobs: The first jobs, in the scheduler's order, for reasons: at most 16.
        region: The region that the jobs prefer; empty for none.
    """

    need: Resources
    constraints: tuple[Constraint, ...]
    tasks: int
    gang_size: int = 0
    gang_slices: int = 1
    group_by: str = ""
    jobs: tuple[JobId, ...] = ()
    region: str = ""


def demands(view: ClusterView, now_ms: int) -> tuple[Demand, ...]:
    """Return what waits for capacity after a scheduling round, in the scheduler's order.

    Jobs that a limit holds back, and tasks that get the capacity of stopping attempts, are left out. Jobs prefer the
    region of their parent job.

    Args:
        view: The view after the round; never modified.
        now_ms: Unix ms.
    """
    count = _Count(view)
    seen: set[tuple[str, JobKind]] = set()
    for turn in turns(view, now_ms):
        turn.rest = Rest.NONE
        job, user = view.jobs[turn.job_id], user_of(turn.job_id)
        kind = kind_of(job, view.demands[turn.job_id], len(view.pending[turn.job_id]))
        if (user, kind) not in seen:
            seen.add((user, kind))
            count.add(turn.band, kind, view.waiting_kinds.by_user[user][kind])
    coming = _Coming(view) if view.stopping_counts else None
    found = (item.demand() for item in count.sums.values())
    return tuple(item for item in (found if coming is None else map(coming.without, found)) if item.tasks)


@dataclass(slots=True)
class _Sum:
    first: Demand
    tasks: int = 0
    jobs: list[JobId] = field(default_factory=list)

    def demand(self) -> Demand:
        return replace(self.first, tasks=self.tasks, jobs=tuple(self.jobs))


_Key = tuple[PriorityBand, booking.Demand, int, int, str, str]


class _Count:
    """Sums by band and kind of request, over all users; `sums` keeps the order in which kinds had their first turn."""

    def __init__(self, view: ClusterView) -> None:
        self.sums: dict[_Key, _Sum] = {}
        self._view = view
        self._limit = RunningLimit(view)
        self._regions: dict[str, str] = {}  # of jobs below this name

    def add(self, band: PriorityBand, kind: JobKind, jobs: list[tuple[int, JobId]]) -> None:
        """Add one user's jobs of a kind, oldest first."""
        view, (_, demand, is_counted, shape) = self._view, kind
        size, slices, group_by = 0, 1, ""
        if shape is not None:
            job = view.jobs[jobs[0][1]]
            size, slices, within = gang_shape(job, view)
            group_by = job.spec.coscheduling_group_by
            if within is not None:
                return  # it waits for hosts beside its running members
        is_limited = is_counted and view.jobs_per_user.max_running > 0
        jobs_by_id, pending, held = view.jobs, view.pending, view.held_counts
        sums: dict[str, _Sum] = {}  # by region
        for _, job_id in jobs:
            if job_id in held:
                continue
            job = jobs_by_id[job_id]
            if is_limited:
                if self._limit.why_held(job):
                    return
                self._limit.note_start(job)
            region = "" if is_counted else self._region_of(job_id)  # those that are counted have no parent
            found = sums.get(region)
            if found is None:
                first = Demand(demand.resources, demand.constraints, 0, size, slices, group_by, (), region)
                found = self.sums.setdefault((band, demand, size, slices, group_by, region), _Sum(first))
                sums[region] = found
            found.tasks += size * slices if size else job.may_start(len(pending[job_id]))
            if len(found.jobs) < _MOST_NAMED:
                found.jobs.append(job_id)
            elif found.tasks > _MOST_TASKS:
                return

    def _region_of(self, job_id: JobId) -> str:
        """Return the region of a job's parent, if that runs."""
        head = job_id.rpartition("/")[0]
        known = self._regions.get(head)
        if known is None:
            known = self._regions[head] = self._region_below(parent_of(job_id))
        return known

    def _region_below(self, parent: JobId | None) -> str:
        tasks = self._view.tasks[parent] if parent is not None and parent in self._view.live_jobs else ()
        worker_id = tasks[0].worker_id if tasks else None
        worker = self._view.workers.get(worker_id) if worker_id is not None else None
        return worker.attributes.get("region", "") if worker is not None else ""


class _Coming:
    """Capacity on hosts whose attempts are stopping: the first demands get it, and need no slice."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._left: dict[WorkerId, Resources] = {}
        for name, load in view.loads.items():
            if load.stopping and view.workers[name].is_open:
                host = Host(view.workers[name], load)
                self._left[name] = host.free if host.coming is None else host.free.add(host.coming)

    def without(self, demand: Demand) -> Demand:
        """Return the part of a demand that is left."""
        kind = booking.Demand(demand.need, demand.constraints)
        hosts = [name for name in self._left if may_run_on(kind, self._view.workers[name])]
        if demand.gang_size:
            return replace(demand, tasks=demand.tasks - self._take_gangs(demand, hosts))
        left = demand.tasks
        for name in hosts:
            count = min(left, tasks_on(self._left[name], demand.need))
            self._left[name] = self._left[name].sub(demand.need.times(count))
            left -= count
        return replace(demand, tasks=left)

    def _take_gangs(self, demand: Demand, hosts: list[WorkerId]) -> int:
        """Take whole groups, and return how many tasks they hold."""
        view, key, rooms = self._view, demand.group_by, dict[str, int]()
        coming = dict.fromkeys(view.workers[name].attributes.get(key, "") for name in hosts)
        kind = booking.Demand(demand.need, demand.constraints)
        for name, worker in view.workers.items() if coming else ():
            value = worker.attributes.get(key, "")
            if value and value in coming and worker.is_open and may_run_on(kind, worker):
                free = self._left.get(name) or view.free(name)
                rooms[value] = rooms.get(value, 0) + tasks_on(free, demand.need)
        able = [value for value, room in rooms.items() if room >= demand.gang_size]
        gangs = min(len(able) // demand.gang_slices, demand.tasks // (demand.gang_size * demand.gang_slices))
        taken = set(able[: gangs * demand.gang_slices])
        for name in hosts:
            if view.workers[name].attributes.get(key) in taken:
                self._left[name] = Resources()
        return len(taken) * demand.gang_size
