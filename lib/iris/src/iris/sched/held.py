"""Places jobs on accelerators that reservations of their trees hold."""

from collections import Counter
from collections.abc import Iterable, Iterator

from iris.core.state.booking import Demand
from iris.core.state.view import ClusterView
from iris.domain.entities import Job
from iris.domain.ids import JobId, WorkerId, tree_of
from iris.domain.resources import Resources
from iris.sched.fit import Host, Pool, may_run_on
from iris.sched.gang import Groups


class HeldRoom:
    """Capacity on held accelerators in one round.

    Args:
        view: Never modified.
        hosts: The round's hosts, which shrink by placements, except for held accelerators.
    """

    def __init__(self, view: ClusterView, hosts: Iterable[Host]) -> None:
        self._reserving = view.bookings.reserving
        self._demands = view.demands
        self._hosts = {host.worker.worker_id: host for host in hosts} if self._reserving else {}
        self._left: dict[tuple[str, WorkerId], int] = {}

    @property
    def is_any(self) -> bool:
        """Return whether any reservation holds accelerators."""
        return bool(self._hosts)

    def share_out(self, job: Job, limit: int) -> Iterator[tuple[WorkerId, int]]:
        """Place up to `limit` independent tasks of a job. Yield workers, and how many tasks each takes."""
        job_id = job.spec.job_id
        for host in self._hosts_for(job):
            need = self._demands[job_id].resources
            count = host.room_for(need, limit)
            if count:
                self._take(job_id, host.worker.worker_id, need, count)
                yield host.worker.worker_id, count
                limit -= count
            if not limit:
                return

    def place_gang(self, job: Job, size: int, count: int, within: str | None) -> list[WorkerId] | None:
        """Place a gang on hosts with accelerators held for its tree. Return the workers, or None.

        Args:
            job: The gang.
            size: Tasks in each group.
            count: Number of groups.
            within: The required group.
        """
        hosts = self._hosts_for(job)
        if not hosts:
            return None
        job_id, demand = job.spec.job_id, self._demands[job.spec.job_id]
        groups = Groups(demand, job.spec.coscheduling_group_by, Pool(demand, hosts))
        chosen = groups.choose(size, count, within)
        if chosen is None:
            return None
        placed = groups.take(job_id, chosen, size)
        for worker_id, tasks in Counter(placed).items():
            self._take(job_id, worker_id, demand.resources, tasks)
            self._hosts[worker_id].gangs |= {job_id}
        return placed

    def _hosts_for(self, job: Job) -> list[Host]:
        """Return the hosts with accelerators held for the job's tree, counting these as free."""
        if not self._hosts or job.spec.reserve:
            return []
        job_id = job.spec.job_id
        demand: Demand = self._demands[job_id]
        if demand.resources.accelerator is None:
            return []
        tree, found = tree_of(job_id), []
        for worker_id in self._reserving.get(tree, ()):
            host = self._hosts.get(worker_id)
            if host is None or host.held_by not in (None, job_id) or not may_run_on(demand, host.worker):
                continue
            left = self._left_on(tree, host)
            if left:
                found.append(host.with_devices(left))
        return found

    def _left_on(self, tree: str, host: Host) -> int:
        known = self._left.get((tree, host.worker.worker_id))
        if known is None:
            reserved = host.load.reserved.get(tree)
            known = reserved.lent if reserved is not None else 0
        return known

    def _take(self, job_id: JobId, worker_id: WorkerId, need: Resources, count: int) -> None:
        tree, host = tree_of(job_id), self._hosts[worker_id]
        device = need.accelerator
        left = self._left_on(tree, host)
        held = min(left, device.count * count) if device is not None else 0
        self._left[tree, worker_id] = left - held
        host.take(need, count)
        host.device_count += held
