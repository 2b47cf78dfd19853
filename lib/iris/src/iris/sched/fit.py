"""Tracks free capacity during one round, and finds the workers that fit a request."""

from bisect import bisect_left, insort
from collections.abc import Iterable

from iris.core.state.booking import Demand, PlacementKey
from iris.core.state.load import WorkerLoad
from iris.core.state.view import ClusterView
from iris.domain.constraints import Constraint, ConstraintOp, evaluate, soft_score
from iris.domain.entities import Worker
from iris.domain.ids import JobId, WorkerId
from iris.domain.resources import Device, Resources

_MAX_MISSES_KEPT = 16


class Host:
    """A worker that accepts new work, with its remaining capacity in this round, which only shrinks.

    Attributes:
        coming: Capacity that becomes free when stopping attempts have ended; None for none.
        gangs: Gangs with an attempt on the host, which exclude other gangs. held_by: The job that the host is reserved
        for.
    """

    __slots__ = (
        "coming", "cpu_millis", "device", "device_count", "disk_bytes", "gangs", "held_by", "load", "memory_bytes",
        "order", "worker",
    )  # fmt: skip

    def __init__(self, worker: Worker, load: WorkerLoad, order: int) -> None:
        capacity = worker.capacity
        self.worker = worker
        self.load = load
        self.order = order
        self.cpu_millis = capacity.cpu_millis - load.taken_cpu_millis
        self.memory_bytes = capacity.memory_bytes - load.memory_bytes
        self.disk_bytes = capacity.disk_bytes - load.disk_bytes
        self.device = capacity.accelerator
        self.device_count = (self.device.count if self.device else 0) - load.device_count
        self.gangs: frozenset[JobId] = frozenset(load.gang_attempts) if load.gang_attempts else _NO_GANGS
        self.held_by: JobId | None = None
        self.coming: Resources | None = None
        if load.stopping:
            for booking in load.bookings.values():
                if booking.stopping and not booking.prefilled:
                    self.expect(booking.resources)

    def expect(self, amount: Resources) -> None:
        """Record capacity that becomes free when an attempt has ended."""
        self.coming = amount if self.coming is None else self.coming.add(amount)

    def fits(self, need: Resources) -> bool:
        """Return whether one task with these resources fits now. Agrees with `Resources.fits`."""
        if need.cpu_millis > self.cpu_millis and need.cpu_millis:
            return False
        if need.memory_bytes > self.memory_bytes and need.memory_bytes:
            return False
        if need.disk_bytes > self.disk_bytes and need.disk_bytes:
            return False
        wanted = need.device
        if wanted is None or wanted.kind == "cpu":
            return True
        return self.device is not None and wanted.accepts(self.device) and wanted.count <= self.device_count

    def room_for(self, need: Resources, limit: int) -> int:
        """Return how many tasks with these resources fit now, at most `limit`."""
        if not self.fits(need):
            return 0
        if need.cpu_millis:
            limit = min(limit, self.cpu_millis // need.cpu_millis)
        if need.memory_bytes:
            limit = min(limit, self.memory_bytes // need.memory_bytes)
        if need.disk_bytes:
            limit = min(limit, self.disk_bytes // need.disk_bytes)
        wanted = need.accelerator
        if wanted is not None and wanted.count:
            limit = min(limit, self.device_count // wanted.count)
        return limit

    def will_fit(self, need: Resources) -> bool:
        """Return whether one task with these resources fits after stopping attempts have ended."""
        return need.fits(self.free if self.coming is None else self.free.add(self.coming))

    def take(self, need: Resources, count: int = 1) -> None:
        """Deduct the resources of tasks. Assignments from `coming` may make the rest negative."""
        self.cpu_millis -= need.cpu_millis * count
        self.memory_bytes -= need.memory_bytes * count
        self.disk_bytes -= need.disk_bytes * count
        wanted = need.accelerator
        if wanted is not None:
            self.device_count -= wanted.count * count

    def with_devices(self, count: int) -> "Host":
        """Return a copy with this many more free accelerators."""
        seen = Host(self.worker, self.load, self.order)
        seen.cpu_millis, seen.memory_bytes, seen.disk_bytes = self.cpu_millis, self.memory_bytes, self.disk_bytes
        seen.device_count = self.device_count + count
        seen.gangs, seen.held_by, seen.coming = self.gangs, self.held_by, self.coming
        return seen

    @property
    def free(self) -> Resources:
        """Return the free resources as an amount."""
        device = Device(self.device.kind, self.device.variant, self.device_count) if self.device else None
        return Resources(self.cpu_millis, self.memory_bytes, self.disk_bytes, device)


_NO_GANGS: frozenset[JobId] = frozenset()


def hosts_of(view: ClusterView, among: Iterable[WorkerId] | None = None) -> list[Host]:
    """Return the workers that accept new work, in order of discovery; with `among`, only these."""
    loads, known = view.loads, view.workers
    workers = known.values() if among is None else [known[worker_id] for worker_id in among]
    return [Host(worker, loads[worker.worker_id], order) for order, worker in enumerate(workers) if worker.is_open]


def may_run_on(demand: Demand, worker: Worker) -> bool:
    """Return whether the worker, even if busy, meets the hard constraints and has the kind of device."""
    if demand.constraints and not evaluate(demand.constraints, worker.attributes):
        return False
    return has_device(demand.resources, worker.capacity)


def has_device(need: Resources, capacity: Resources) -> bool:
    """Return whether a worker with this capacity has the required kind of accelerator, in any number."""
    wanted, have = need.accelerator, capacity.accelerator
    return wanted is None or (have is not None and wanted.accepts(have))


_Entry = tuple[int, int, int, Host]  # free cpu, free memory, order


class Pool:
    """The hosts eligible for one wish (constraints and device), sorted for best fit.

    The best host meets most soft constraints. Among these, hosts whose accelerators the task would leave idle come
    last. Among the rest, the fullest host with room is best, so that room for large requests stays together.

    Hosts also shrink through other pools. Because hosts only shrink, an outdated entry is too far to the right, where
    each search passes and corrects it.
    """

    def __init__(self, demand: Demand, hosts: Iterable[Host]) -> None:
        self.hosts = [host for host in hosts if may_run_on(demand, host.worker)]
        self.hosts_set = frozenset(self.hosts)
        plain = demand.resources.accelerator is None
        tiers: dict[tuple[int, bool], list[_Entry]] = {}
        soft = any(constraint.soft for constraint in demand.constraints)
        for host in self.hosts:
            score = soft_score(demand.constraints, host.worker.attributes) if soft else 0
            entry = (host.cpu_millis, host.memory_bytes, host.order, host)
            tiers.setdefault((-score, plain and host.device is not None), []).append(entry)
        self._tiers = [sorted(entries) for _, entries in sorted(tiers.items(), key=lambda item: item[0])]
        self._misses: list[Resources] = []
        self._hint: Host | None = None
        self._hint_need: Resources | None = None

    def find(self, need: Resources) -> Host | None:
        """Return the best unreserved host for a task of this size now, or None."""
        hint = self._hint
        # A host that was best for this need stays it while it has room: it has only become fuller.
        if hint is not None and self._hint_need is need and hint.held_by is None and hint.fits(need):
            return hint
        if self._misses and self.misses(need):
            return None
        self._hint_need = need
        for tier in self._tiers:
            self._hint = host = _search(tier, need)
            if host is not None:
                return host
        self._note_miss(need)
        return None

    def misses(self, need: Resources) -> bool:
        """Return whether a request of this size or smaller has already failed in this round."""
        return any(_covers(need, missed) for missed in self._misses)

    def _note_miss(self, need: Resources) -> None:
        kept = [missed for missed in self._misses if not _covers(missed, need)]
        self._misses = [need, *kept[: _MAX_MISSES_KEPT - 1]]


def _search(tier: list[_Entry], need: Resources) -> Host | None:
    cpu = need.cpu_millis
    index = bisect_left(tier, (cpu,)) if cpu else 0
    while index < len(tier):
        entry = tier[index]
        host = entry[3]
        if entry[0] != host.cpu_millis or entry[1] != host.memory_bytes:
            del tier[index]
            fresh = (host.cpu_millis, host.memory_bytes, host.order, host)
            insort(tier, fresh)
        if host.held_by is None and host.fits(need):
            return host
        index += 1
    return None


def _covers(larger: Resources, smaller: Resources) -> bool:
    """Return whether `larger` needs at least as much as `smaller` in every dimension; both have the same `wish`."""
    return (
        larger.cpu_millis >= smaller.cpu_millis
        and larger.memory_bytes >= smaller.memory_bytes
        and larger.disk_bytes >= smaller.disk_bytes
        and (smaller.device.count if smaller.device else 0) <= (larger.device.count if larger.device else 0)
    )


class Pools:
    """The pools of one round, created on request."""

    def __init__(self, hosts: list[Host]) -> None:
        self.hosts = hosts
        self._by_key: dict[PlacementKey, Pool] = {}
        self._of_demand: dict[Demand, Pool] = {}
        self._by_value: dict[str, dict[str, list[Host]]] = {}

    def of(self, demand: Demand) -> Pool:
        """Return the pool of a request."""
        pool = self._of_demand.get(demand)
        if pool is None:
            pool = self._by_key.get(demand.placement_key)
            if pool is None:
                pool = self._by_key[demand.placement_key] = Pool(demand, self._narrowed(demand.constraints))
            self._of_demand[demand] = pool
        return pool

    def _narrowed(self, constraints: tuple[Constraint, ...]) -> Iterable[Host]:
        """Return a superset of the matching hosts, using an attribute index if a constraint allows it."""
        for constraint in constraints:
            if not constraint.soft and constraint.op in (ConstraintOp.EQ, ConstraintOp.IN):
                by_value = self.by_value(constraint.key)
                return [host for value in dict.fromkeys(constraint.values) for host in by_value.get(value, ())]
        return self.hosts

    def by_value(self, key: str) -> dict[str, list[Host]]:
        """Return the hosts with the attribute, by its value."""
        found = self._by_value.get(key)
        if found is None:
            found = self._by_value[key] = {}
            for host in self.hosts:
                value = host.worker.attributes.get(key)
                if value is not None:
                    found.setdefault(value, []).append(host)
        return found
