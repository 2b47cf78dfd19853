"""Reservations for jobs that have waited long, so that smaller work cannot starve them."""

from collections.abc import Sequence
from typing import Final

from iris.domain.entities import Job
from iris.domain.ids import JobId
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
        return is_old(job, self._now_ms) and not self.is_full(band) and not has_live(job)

    def is_full(self, band: PriorityBand) -> bool:
        """Return whether this round makes no more reservations in the band."""
        return self._made.get(band, 0) >= MAX_RESERVED

    def keep_host(self, job_id: JobId, band: PriorityBand, host: Host) -> None:
        """Reserve a host, so that it gets no new work.

        Args:
            job_id: The job.
            band: The job's band. Less urgent work does not get the host.
            host: The host.
        """
        host.keep_for(job_id)
        self._made[band] = self._made.get(band, 0) + 1

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
                host.keep_for(job_id)
        self._made[band] = self._made.get(band, 0) + 1
        return ", ".join(f"{groups.group_by} {value}" for _, value, _ in able[:count])


def is_old(job: Job, now_ms: int) -> bool:
    """Return whether a job has waited so long that capacity may be reserved for it."""
    return now_ms - job.submitted_at_ms >= RESERVE_AFTER_MS


def has_live(job: Job) -> bool:
    """Return whether some task of the job has a live attempt."""
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
