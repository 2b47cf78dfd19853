"""Tracks free capacity during one round, and finds the workers that fit a request."""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Set

from iris.core.state.booking import Demand, PlacementKey
from iris.core.state.load import WorkerLoad
from iris.core.state.view import ClusterView
from iris.domain.constraints import Constraint, ConstraintOp, evaluate, soft_score
from iris.domain.entities import Worker
from iris.domain.ids import JobId
from iris.domain.resources import Device, Resources

_MAX_MISSES_KEPT = 16
_FEW = 64
_NO_LIMIT = 1 << 60
_SPARE_DEMANDS = 1000


class Host:
    """A worker that accepts new work, with its remaining capacity in this round, which only shrinks.

    Attributes:
        coming: Capacity that becomes free when stopping attempts have ended; None for none.
        gangs: Gangs with an attempt on the host, which exclude other gangs. held_by: The job that the host is reserved
        for. used: All hosts of the round that have changed in it, in order, with repetitions.
    """

    __slots__ = (
        "coming", "cpu_millis", "device", "device_count", "disk_bytes", "gangs", "held_by", "is_open", "load",
        "memory_bytes", "order", "used", "worker",
    )  # fmt: skip

    def __init__(self, worker: Worker, load: WorkerLoad, used: "list[Host] | None" = None) -> None:
        self.load = load
        self.order = load.order
        self.used: list[Host] = [] if used is None else used
        self.renew(worker)

    def renew(self, worker: Worker) -> None:
        """Begin a round with what the worker has free."""
        capacity, load = worker.capacity, self.load
        self.worker = worker
        self.is_open = worker.is_open
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
        self.used.append(self)
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
        self.used.append(self)
        self.cpu_millis -= need.cpu_millis * count
        self.memory_bytes -= need.memory_bytes * count
        self.disk_bytes -= need.disk_bytes * count
        wanted = need.accelerator
        if wanted is not None:
            self.device_count -= wanted.count * count

    def keep_for(self, job_id: JobId) -> None:
        """Reserve the host for a job in this round."""
        self.used.append(self)
        self.held_by = job_id

    def with_devices(self, count: int) -> "Host":
        """Return a copy with this many more free accelerators."""
        seen = Host(self.worker, self.load)
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


def hosts_of(view: ClusterView) -> list[Host]:
    """Return the workers that accept new work, in order of discovery."""
    loads = view.loads
    used: list[Host] = []
    return [Host(worker, loads[name], used) for name, worker in view.workers.items() if worker.is_open]


def may_run_on(demand: Demand, worker: Worker) -> bool:
    """Return whether the worker, even if busy, meets the hard constraints and has the kind of device."""
    if demand.constraints and not evaluate(demand.constraints, worker.attributes):
        return False
    return has_device(demand.resources, worker.capacity)


def has_device(need: Resources, capacity: Resources) -> bool:
    """Return whether a worker with this capacity has the required kind of accelerator, in any number."""
    wanted, have = need.accelerator, capacity.accelerator
    return wanted is None or (have is not None and wanted.accepts(have))


_Tier = tuple[int, bool]
_Entry = tuple[int, int, int, Host]  # free cpu, free memory, order


class Pool:
    """The hosts eligible for one wish (constraints and device), sorted for best fit.

    The best host meets most soft constraints. Among these, hosts whose accelerators the task would leave idle come
    last. Among the rest, the fullest host with room is best, so that room for large requests stays together.

    Requests that failed in the last round are tried only on hosts that have changed since.

    Attributes:
        hosts: In order of discovery. fresh: The hosts that changed since the last round.
    """

    def __init__(self, demand: Demand, hosts: Iterable[Host]) -> None:
        self._demand = demand
        self._is_plain = demand.resources.accelerator is None
        self._has_soft = any(constraint.soft for constraint in demand.constraints)
        self.hosts = sorted((host for host in hosts if may_run_on(demand, host.worker)), key=_order)
        self.hosts_set = set(self.hosts)
        self.fresh = self.hosts
        self._entries: dict[Host, tuple[_Tier, _Entry]] = {}
        tiers: dict[_Tier, list[_Entry]] = {}
        for host in self.hosts:
            tier, entry = self._entries[host] = (self._tier_of(host), _entry(host))
            tiers.setdefault(tier, []).append(entry)
        self._tiers = {tier: sorted(entries) for tier, entries in sorted(tiers.items())}
        self._most_cpu = max((host.worker.capacity.cpu_millis for host in self.hosts), default=0)
        self._used = self.hosts[0].used if self.hosts else []
        self._place_in_used = len(self._used)
        self._misses: list[Resources] = []
        self._missed: dict[Resources, None] = {}
        self._missed_before: tuple[Iterable[Resources], dict[Resources, None]] = ((), {})
        self._hint: Host | None = None
        self._hint_need: Resources | None = None

    def renew(self, fresh: Iterable[Host], changed: Set[Host]) -> None:
        """Begin a round.

        Args:
            fresh: The hosts of which something may have changed since the last one, already renewed.
            changed: Those of them that are new, or whose worker has changed or is gone.
        """
        self._missed_before = self._misses, self._missed
        self._misses, self._missed = [], {}
        self._hint = None
        self._place_in_used = 0
        for host in changed:
            self._remove(host)
            if self._admit(host):
                self._insert(host)
        self.fresh = [host for host in fresh if host in self._entries]
        for host in self.fresh:
            self._correct(host)

    def _correct(self, host: Host) -> None:
        """Take over what is free on a host now."""
        if self._entries[host][1] != _entry(host):
            self._remove(host)
            self._insert(host)

    def _remove(self, host: Host) -> None:
        known = self._entries.pop(host, None)
        if known is not None:
            tier, entry = known
            del self._tiers[tier][bisect_left(self._tiers[tier], entry)]

    def _insert(self, host: Host) -> None:
        tier, entry = self._entries[host] = (self._tier_of(host), _entry(host))
        if tier not in self._tiers:
            self._tiers = dict(sorted({**self._tiers, tier: []}.items()))
        insort(self._tiers[tier], entry)

    def _admit(self, host: Host) -> bool:
        """Return whether a changed host is eligible, and add it to the hosts, or remove it."""
        may_run = host.is_open and may_run_on(self._demand, host.worker)
        if host in self.hosts_set and not may_run:
            self.hosts_set.remove(host)
            self.hosts.remove(host)
        elif may_run and host not in self.hosts_set:
            self.hosts_set.add(host)
            insort(self.hosts, host, key=_order)
        if may_run:
            self._most_cpu = max(self._most_cpu, host.worker.capacity.cpu_millis)
        return may_run

    def _tier_of(self, host: Host) -> _Tier:
        score = soft_score(self._demand.constraints, host.worker.attributes) if self._has_soft else 0
        return (-score, self._is_plain and host.device is not None)

    def find(self, need: Resources) -> Host | None:
        """Return the best unreserved host for a task of this size now, or None."""
        hint = self._hint
        # A host that was best for this need stays it while it has room: it has only become fuller.
        if hint is not None and self._hint_need is need and hint.held_by is None and hint.fits(need):
            return hint
        if self._misses and self.misses(need):
            return None
        self._hint_need = need
        while self._place_in_used < len(self._used):
            host = self._used[self._place_in_used]
            self._place_in_used += 1
            if host in self._entries:
                self._correct(host)
        self._hint = found = self._search(need)
        if found is None:
            self._note_miss(need)
        return found

    def _search(self, need: Resources) -> Host | None:
        if len(self.fresh) <= _FEW and self._has_missed_before(need):
            able = [host for host in self.fresh if host.held_by is None and host.fits(need)]
            return min(able, key=self._entries.__getitem__, default=None)
        cpu = need.cpu_millis
        for tier in self._tiers.values():
            for place in range(bisect_left(tier, (cpu,)) if cpu else 0, len(tier)):
                host = tier[place][3]
                if host.held_by is None and host.fits(need):
                    return host
        return None

    def changed(self) -> Set[Host]:
        """Return the hosts that have changed since the begin of the last round."""
        return {*self.fresh, *self.hosts_set.intersection(self._used)}

    def misses(self, need: Resources) -> bool:
        """Return whether a request of this size or smaller has already failed in this round."""
        return any(_covers(need, missed) for missed in self._misses)

    def most(self, need: Resources) -> int:
        """Return a number of tasks of this size that no host can exceed, unless cpu is lent there."""
        return self._most_cpu // need.cpu_millis if need.cpu_millis else _NO_LIMIT

    def _has_missed_before(self, need: Resources) -> bool:
        misses, missed = self._missed_before
        return need in missed or any(_covers(need, other) for other in misses)

    def _note_miss(self, need: Resources) -> None:
        self._missed[need] = None
        kept = [missed for missed in self._misses if not _covers(missed, need)]
        self._misses = [need, *kept[: _MAX_MISSES_KEPT - 1]]


def _order(host: Host) -> int:
    return host.order


def _entry(host: Host) -> _Entry:
    return (host.cpu_millis, host.memory_bytes, host.order, host)


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

    def renew(self, fresh: Iterable[Host], changed: Set[Host], wanted: Collection[Demand]) -> None:
        """Begin a round.

        Args:
            fresh: As in `Pool.renew`, like `changed`.
            changed: See there.
            wanted: The demands that wait. Pools of others are dropped when there are many.
        """
        if changed:
            self._by_value.clear()
        if len(self._of_demand) > 2 * len(wanted) + _SPARE_DEMANDS:
            self._of_demand = {demand: pool for demand, pool in self._of_demand.items() if demand in wanted}
            self._by_key = {demand.placement_key: pool for demand, pool in self._of_demand.items()}
        for pool in self._by_key.values():
            pool.renew(fresh, changed)

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
