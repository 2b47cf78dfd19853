"""Places all tasks of a gang together, or none of them."""

from bisect import bisect_left, insort
from typing import Final

from iris.core.state.booking import Demand
from iris.domain.constraints import soft_score
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


def usable(host: Host, job_id: JobId | None) -> bool:
    """Return whether a gang may use the host: no other gang uses it, and no other job has reserved it."""
    return (host.held_by is None or host.held_by == job_id) and (not host.gangs or host.gangs == {job_id})


class Groups:
    """The groups eligible for gangs of one demand, sorted by remaining room.

    As in pools, room only shrinks during a round. An outdated size is detected at its use.

    Args:
        group_by: The attribute whose value the members of a group share.
    """

    def __init__(self, demand: Demand, group_by: str, pool: Pool) -> None:
        self.group_by = group_by
        self.need = demand.resources
        self.members: dict[str, list[Host]] = {}
        for host in pool.hosts:
            value = host.worker.attributes.get(group_by)
            if value is not None:
                self.members.setdefault(value, []).append(host)
        soft = any(constraint.soft for constraint in demand.constraints)
        tiers: dict[int, list[tuple[int, str]]] = {}
        for value, hosts in self.members.items():
            hosts.sort(key=rank)
            score = min(soft_score(demand.constraints, host.worker.attributes) for host in hosts) if soft else 0
            tiers.setdefault(-score, []).append((self.room(value), value))
        self._tiers = [sorted(sizes) for _, sizes in sorted(tiers.items())]

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
        chosen: list[str] = []
        for tier in self._tiers:
            index = bisect_left(tier, (size,))
            while index < len(tier) and len(chosen) < count:
                known, value = tier[index]
                room = self.room(value)
                if room != known:
                    del tier[index]
                    insort(tier, (room, value))
                if room >= size:
                    chosen.append(value)
                index += 1
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
