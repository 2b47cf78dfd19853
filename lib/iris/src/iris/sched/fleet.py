"""The hosts, kept between rounds: a round renews only those that changed since the last one."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from iris.core.state.booking import Demand
from iris.core.state.view import ClusterView
from iris.domain.entities import Worker
from iris.domain.ids import JobId, WorkerId
from iris.domain.resources import shortfalls
from iris.domain.states import PriorityBand
from iris.sched.fit import Host, Pool, Pools
from iris.sched.gang import Groups

_REBUILD_AT = 8
"""Renewing one host in a sorted list costs about as much as sorting so many."""


_MAX_NEAREST = 32


class Nearest:
    """The hosts that could run one task of a demand, the one that lacks least first."""

    def __init__(self, demand: Demand, pool: Pool) -> None:
        self._need = demand.resources
        self._pool = pool
        self._keys: dict[Host, tuple[float, int, Host]] = {}
        for host in pool.hosts:
            if self._need.fits(host.worker.capacity):
                self._keys[host] = self._key(host)
        self._sorted = sorted(self._keys.values())

    def renew(self, hosts: Iterable[Host]) -> None:
        """Take over what these hosts have free now."""
        for host in hosts:
            known = self._keys.pop(host, None)
            if known is not None:
                del self._sorted[bisect_left(self._sorted, known)]
            if host in self._pool.hosts_set and self._need.fits(host.worker.capacity):
                key = self._keys[host] = self._key(host)
                insort(self._sorted, key)

    def first(self) -> Host | None:
        """Return the first host that is reserved for no job."""
        return next((host for _, _, host in self._sorted if host.held_by is None), None)

    def _key(self, host: Host) -> tuple[float, int, Host]:
        lacking = shortfalls(self._need, host.free)
        return (lacking[0].severity if lacking else 0.0, host.order, host)


class Fleet:
    """The hosts of a view in one round, and what is known of them from the last one.

    Attributes:
        hosts: Those that accept new work, in order of discovery. leaving: Those on which attempts are stopping.
        exhausted: Requests for which this round found nothing to preempt on any host. was_exhausted: The last round's.
        hopeless: Like `exhausted`, for gangs. was_hopeless: The last round's.
    """

    def __init__(self, view: ClusterView) -> None:
        self.view = view
        self._rebuild()

    def _rebuild(self) -> None:
        view = self.view
        self._stamp = view.touched.stamp
        self._used: list[Host] = []
        self._all = {name: Host(worker, view.loads[name], self._used) for name, worker in view.workers.items()}
        self._used.clear()
        self._list_hosts()
        self.leaving = {host for host in self.hosts if host.coming is not None}
        self.pools = Pools(self.hosts)
        self._groups: dict[tuple[Demand, str], Groups] = {}
        self._nearest: dict[Demand, Nearest] = {}
        self.exhausted: set[tuple[Demand, PriorityBand]] = set()
        self.was_exhausted: set[tuple[Demand, PriorityBand]] = set()
        self.hopeless: set[tuple[Groups, int, int, PriorityBand]] = set()
        self.was_hopeless: set[tuple[Groups, int, int, PriorityBand]] = set()

    def _list_hosts(self) -> None:
        self.hosts = [host for host in self._all.values() if host.is_open]

    def renew(self) -> None:
        """Begin a round: every host has what its worker has free."""
        view = self.view
        fresh, changed = set(self._used), set[Host]()
        for name in reversed(view.touched.since(self._stamp)):
            worker, host = view.workers.get(name), self._all.get(name)
            if host is not None and (worker is None or host.load is not view.loads[name]):
                del self._all[name]
                host.is_open = False
                fresh.add(host)
                changed.add(host)
                host = None
            if worker is None:
                continue
            if host is None:
                host = self._all[name] = Host(worker, view.loads[name], self._used)
                changed.add(host)
            elif _is_other(host, worker):
                changed.add(host)
            fresh.add(host)
        if len(fresh) * _REBUILD_AT > len(self._all):
            self._rebuild()
            return
        self._stamp = view.touched.stamp
        self._renew(fresh, changed)

    def _renew(self, fresh: set[Host], changed: set[Host]) -> None:
        view = self.view
        for host in fresh:
            name = host.worker.worker_id
            if self._all.get(name) is host:
                host.renew(view.workers[name])
            (self.leaving.add if host.is_open and host.coming is not None else self.leaving.discard)(host)
        self._used.clear()
        if changed:
            self._all = dict(sorted(self._all.items(), key=lambda item: item[1].order))
            self._list_hosts()
            self._groups.clear()
        self.pools.renew(fresh, changed, view.waiting_demands)
        self.pools.hosts = self.hosts
        self._groups = {key: groups for key, groups in self._groups.items() if key[0] in view.waiting_demands}
        for groups in self._groups.values():
            groups.renew(fresh)
        waiting = [item for item in self._nearest.items() if item[0] in view.waiting_demands]
        self._nearest = dict(waiting[-_MAX_NEAREST:])
        for nearest in self._nearest.values():
            nearest.renew(fresh)
        self.was_exhausted, self.exhausted = self.exhausted, set()
        self.was_hopeless, self.hopeless = self.hopeless, set()

    def host(self, worker_id: WorkerId) -> Host | None:
        """Return the host of a worker that accepts new work; None for others."""
        host = self._all.get(worker_id)
        return host if host is not None and host.is_open else None

    def in_order(self, workers: Iterable[WorkerId]) -> list[Host]:
        """Return the hosts of these workers that accept new work, in order of discovery."""
        found = [host for worker_id in workers if (host := self.host(worker_id)) is not None]
        return sorted(found, key=lambda host: host.order)

    def kept(self) -> Iterator[tuple[WorkerId, JobId]]:
        """Yield the hosts that this round has reserved, each with its job."""
        for host in self._used:
            if host.held_by is not None:
                yield host.worker.worker_id, host.held_by

    def groups_of(self, demand: Demand, group_by: str) -> Groups:
        """Return the groups for gangs of a demand."""
        groups = self._groups.get((demand, group_by))
        if groups is None:
            groups = self._groups[demand, group_by] = Groups(demand, group_by, self.pools.of(demand))
        return groups

    def nearest_to(self, demand: Demand) -> Host | None:
        """Return the unreserved host that is closest to having room for one task."""
        nearest = self._nearest.pop(demand, None)
        if nearest is None:
            nearest = Nearest(demand, self.pools.of(demand))
        else:
            nearest.renew(self._used)
        self._nearest[demand] = nearest
        return nearest.first()


def _is_other(host: Host, worker: Worker) -> bool:
    known = host.worker
    return (
        host.is_open is not worker.is_open
        or known.capacity != worker.capacity
        or (known.attributes is not worker.attributes and known.attributes != worker.attributes)
    )
