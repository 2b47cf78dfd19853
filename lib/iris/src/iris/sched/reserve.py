"""Reservations for jobs that have waited long, so that smaller work cannot starve them."""

from collections.abc import Sequence
from typing import Final

from iris.core.state.booking import Demand
from iris.domain.entities import Job
from iris.domain.ids import JobId
from iris.domain.resources import shortfalls
from iris.domain.states import LIVE_TASK_STATES, PriorityBand
from iris.sched.fit import Host
from iris.sched.gang import Groups

RESERVE_AFTER_MS: Final = 5 * 60 * 1000
MAX_RESERVED: Final = 4


class Reservations:
    """Reserves hosts for jobs that have waited long: in each band and round for the first few in scheduling order."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._made: dict[PriorityBand, int] = {}

    def is_due(self, job: Job, band: PriorityBand) -> bool:
        """Return whether the job has waited long without running tasks, and few enough such jobs come before it."""
        old = self._now_ms - job.submitted_at_ms >= RESERVE_AFTER_MS
        return old and self._made.get(band, 0) < MAX_RESERVED and not _has_live(job)

    def keep_host(self, job_id: JobId, band: PriorityBand, demand: Demand, hosts: Sequence[Host]) -> Host | None:
        """Reserve the host that is closest to having room for one task, so that it gets no new work.

        Args:
            job_id: The job.
            band: The job's band. Less urgent work does not get the host.
            demand: The task's demand.
            hosts: The hosts that fit the demand.
        """
        best: tuple[float, int] | None = None
        chosen: Host | None = None
        for host in hosts:
            if host.held_by is not None or not demand.resources.fits(host.worker.capacity):
                continue
            lacking = shortfalls(demand.resources, host.free)
            key = (lacking[0].severity if lacking else 0.0, host.order)
            if best is None or key < best:
                best, chosen = key, host
        if chosen is not None:
            chosen.held_by = job_id
            self._made[band] = self._made.get(band, 0) + 1
        return chosen

    def keep_groups(self, job_id: JobId, band: PriorityBand, groups: Groups, size: int, count: int) -> str:
        """Reserve the groups closest to having room. Return their names; empty if no group could ever have room.

        Args:
            job_id: The gang.
            band: The gang's band. Less urgent work does not get the hosts.
            groups: The hosts by group.
            size: Tasks in each group.
            count: Number of groups.
        """
        able = []
        for value, hosts in groups.members.items():
            there = [host for host in hosts if host.held_by is None and groups.need.fits(host.worker.capacity)]
            if _could_hold(there, groups, size):
                able.append((-groups.room(value, size), value, there))
        if len(able) < count:
            return ""
        able.sort(key=lambda item: item[:2])
        for _, _, there in able[:count]:
            for host in there:
                host.held_by = job_id
        self._made[band] = self._made.get(band, 0) + 1
        return ", ".join(f"{groups.group_by} {value}" for _, value, _ in able[:count])


def _has_live(job: Job) -> bool:
    return any(job.task_counts[state] for state in LIVE_TASK_STATES)


def _could_hold(hosts: Sequence[Host], groups: Groups, size: int) -> bool:
    if len(hosts) >= size:
        return True
    held = 0
    for host in hosts:
        left = host.worker.capacity
        while held < size and groups.need.fits(left):
            held += 1
            left = left.sub(groups.need)
    return held >= size
