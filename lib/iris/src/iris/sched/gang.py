"""Places all tasks of a gang together, or none of them."""

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Final

from iris.core.state.booking import Demand
from iris.core.state.view import ClusterView
from iris.domain.constraints import soft_score
from iris.domain.entities import Job
from iris.domain.ids import JobId, WorkerId
from iris.domain.job_spec import JobSpec
from iris.domain.resources import SLICE_ATTRIBUTE, slice_hosts
from iris.sched.fit import Host, Pool

ORDER_ATTRIBUTE: Final = "tpu-worker-id"


def group_size(spec: JobSpec) -> int:
    """Return the number of the gang's tasks in one group: a whole TPU slice, or all tasks.

    A job over several slices of a known type (multislice) fills whole slices in task order.
    """
    hosts = slice_hosts(spec.resources.accelerator)
    if spec.coscheduling_group_by != SLICE_ATTRIBUTE or hosts is None:
        return spec.replicas
    return hosts if spec.replicas % hosts == 0 else spec.replicas


def gang_shape(job: Job, view: ClusterView) -> tuple[int, int, str | None]:
    """Return a gang's pending tasks in each group, the number of groups, and the group with its running members."""
    pending = len(view.pending[job.job_id])
    within = _group_of_running(job, view) if pending < job.spec.replicas else None
    size = pending if within is not None else min(group_size(job.spec), pending)
    return size, max(pending // size, 1), within


def _group_of_running(job: Job, view: ClusterView) -> str | None:
    for task in view.tasks[job.job_id]:
        if task.state.is_live and task.worker_id is not None:
            return view.workers[task.worker_id].attributes.get(job.spec.coscheduling_group_by)
    return None


def usable(host: Host, job_id: JobId | None) -> bool:
    """Return whether a gang may use the host: no other gang uses it, and no other job has reserved it."""
    return (host.held_by is None or host.held_by == job_id) and (not host.gangs or host.gangs == {job_id})


class Groups:
    """The groups eligible for gangs of one demand, sorted by remaining room.

    Args:
        group_by: The attribute whose value the members of a group share.
    """

    def __init__(self, demand: Demand, group_by: str, pool: Pool) -> None:
        self.group_by = group_by
        self.need = demand.resources
        self._hosts = pool.hosts_set
        self.members: dict[str, list[Host]] = {}
        for host in pool.hosts:
            value = host.worker.attributes.get(group_by)
            if value is not None:
                self.members.setdefault(value, []).append(host)
        soft = any(constraint.soft for constraint in demand.constraints)
        tiers: dict[int, list[tuple[int, str]]] = {}
        self._places: dict[str, tuple[int, tuple[int, str]]] = {}
        for value, hosts in self.members.items():
            hosts.sort(key=rank)
            score = min(soft_score(demand.constraints, host.worker.attributes) for host in hosts) if soft else 0
            tier, entry = self._places[value] = (-score, (self.room(value), value))
            tiers.setdefault(tier, []).append(entry)
        self._tiers = {tier: sorted(entries) for tier, entries in sorted(tiers.items())}
        self._is_fresh = True
        self._used = pool.hosts[0].used if pool.hosts else []
        self._place_in_used = len(self._used)

    def renew(self, fresh: Iterable[Host]) -> None:
        """Begin a round with the same members, of which these have changed since the last one."""
        self._place_in_used = 0
        self._is_fresh = not self._hosts.isdisjoint(fresh)
        self._correct(fresh)

    @property
    def has_changed(self) -> bool:
        """Return whether any host has changed since the begin of the last round."""
        return self._is_fresh or not self._hosts.isdisjoint(self._used)

    def _correct(self, hosts: Iterable[Host]) -> None:
        """Take over the room that the groups of these hosts have now."""
        for value in {host.worker.attributes.get(self.group_by) for host in hosts if host in self._hosts}:
            if value is None:
                continue
            tier, known = self._places[value]
            entry = (self.room(value), value)
            if entry != known:
                entries = self._tiers[tier]
                del entries[bisect_left(entries, known)]
                insort(entries, entry)
                self._places[value] = (tier, entry)

    def room(self, value: str, limit: int = 1 << 30) -> int:
        """Return how many tasks a group has room for now."""
        return sum(host.room_for(self.need, limit) for host in self.members[value] if usable(host, None))

    def choose(self, size: int, count: int, within: str | None) -> list[str] | None:
        """Return the `count` groups with room for `size` tasks each that leave the least room, or None.

        Args:
            size: Tasks in each group.
            count: Number of groups.
            within: The required group, for a gang with running members.
        """
        if within is not None:
            fits = within in self.members and self.room(within) >= size
            return [within] if fits and count == 1 else None
        self._correct(self._used[self._place_in_used :])
        self._place_in_used = len(self._used)
        chosen: list[str] = []
        for tier in self._tiers.values():
            chosen += [value for _, value in tier[bisect_left(tier, (size,)) :][: count - len(chosen)]]
        return sorted(chosen, key=_natural) if len(chosen) == count else None

    def take(self, job_id: JobId, values: list[str], size: int) -> list[WorkerId]:
        """Deduct the room for `size` tasks from each of these groups, in host order.

        Args:
            job_id: The gang.
            values: The groups.
            size: Tasks in each of them.
        """
        placed: list[WorkerId] = []
        for value in values:
            left = size
            for host in self.members[value]:
                room = host.room_for(self.need, left) if usable(host, None) else 0
                if room:
                    host.take(self.need, room)
                    host.gangs = frozenset({job_id})
                    placed += [host.worker.worker_id] * room
                    left -= room
        return placed


def rank(host: Host) -> tuple[bool, tuple[int, str], int]:
    """Return a host's position in its slice: by its TPU worker id, or else by order of discovery."""
    text = host.worker.attributes.get(ORDER_ATTRIBUTE)
    return (text is None, _natural(text or ""), host.order)


def _natural(text: str) -> tuple[int, str]:
    """Return a key that sorts "10" after "9"."""
    return (int(text), "") if text.isascii() and text.isdigit() else (1 << 62, text)
