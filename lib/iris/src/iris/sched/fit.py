"""Free capacity during one round, and which workers can take a request."""

from iris.core.load import WorkerLoad
from iris.core.view import ClusterView, Demand
from iris.domain.constraints import evaluate, soft_score
from iris.domain.entities import Worker
from iris.domain.resources import Device, Resources


class Host:
    """A connected worker with what is left of it in this round. Only shrinks while the round goes on."""

    __slots__ = ("cpu_millis", "device", "device_count", "disk_bytes", "memory_bytes", "worker")

    def __init__(self, worker: Worker, load: WorkerLoad) -> None:
        capacity = worker.capacity
        self.worker = worker
        self.cpu_millis = capacity.cpu_millis - load.cpu_millis
        self.memory_bytes = capacity.memory_bytes - load.memory_bytes
        self.disk_bytes = capacity.disk_bytes - load.disk_bytes
        self.device = capacity.accelerator
        self.device_count = (self.device.count if self.device else 0) - load.device_count

    def fits(self, need: Resources) -> bool:
        """Whether one task of that size fits now. Agrees with `Resources.fits`."""
        if need.cpu_millis > self.cpu_millis and need.cpu_millis:
            return False
        if need.memory_bytes > self.memory_bytes and need.memory_bytes:
            return False
        if need.disk_bytes > self.disk_bytes and need.disk_bytes:
            return False
        wanted = need.accelerator
        if wanted is None:
            return True
        return self.device is not None and wanted.accepts(self.device) and wanted.count <= self.device_count

    def room_for(self, need: Resources, limit: int) -> int:
        """How many tasks of that size fit now, at most `limit`."""
        if not self.fits(need):
            return 0
        wanted = need.accelerator
        for asked, there in (
            (need.cpu_millis, self.cpu_millis),
            (need.memory_bytes, self.memory_bytes),
            (need.disk_bytes, self.disk_bytes),
            (wanted.count if wanted else 0, self.device_count),
        ):
            if asked:
                limit = min(limit, there // asked)
        return limit

    def take(self, need: Resources) -> None:
        """Use the resources of one task."""
        self.cpu_millis -= need.cpu_millis
        self.memory_bytes -= need.memory_bytes
        self.disk_bytes -= need.disk_bytes
        wanted = need.accelerator
        if wanted is not None:
            self.device_count -= wanted.count

    @property
    def free(self) -> Resources:
        """What is left, as an amount."""
        device = Device(self.device.kind, self.device.variant, self.device_count) if self.device else None
        return Resources(self.cpu_millis, self.memory_bytes, self.disk_bytes, device)


def hosts_of(view: ClusterView) -> list[Host]:
    """The connected workers, in the order in which they became known."""
    loads = view.loads
    return [Host(worker, loads[worker.worker_id]) for worker in view.workers.values() if worker.connected]


def may_run_on(demand: Demand, worker: Worker) -> bool:
    """Whether the worker meets the hard constraints and has the kind of device, however busy it is."""
    if demand.constraints and not evaluate(demand.constraints, worker.attributes):
        return False
    wanted = demand.resources.accelerator
    have = worker.capacity.accelerator
    return wanted is None or (have is not None and wanted.accepts(have))


def candidates(demand: Demand, hosts: list[Host]) -> list[Host]:
    """The hosts that can take one such task now, the best last.

    Best is the one that meets most soft constraints; then one whose accelerators would not lie idle under a task that
    needs none; then the fullest, so that room for large requests stays together.
    """
    found = [host for host in hosts if host.fits(demand.resources) and may_run_on(demand, host.worker)]
    if len(found) > 1:
        plain = demand.resources.accelerator is None
        found.sort(
            key=lambda host: (
                soft_score(demand.constraints, host.worker.attributes) if demand.constraints else 0,
                not (plain and host.device is not None),
                -host.cpu_millis,
                -host.memory_bytes,
            )
        )
    return found
