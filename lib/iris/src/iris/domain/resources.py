"""Resources of tasks and workers: CPU, memory, disk, accelerators. TPUs come in whole hosts and slices."""

from dataclasses import dataclass

from rigging.errors import InvalidRequest
from rigging.text.quantities import format_size
from rigging.topology import TpuTopologyInfo, get_tpu_topology

SLICE_ATTRIBUTE = "tpu-name"


@dataclass(frozen=True, slots=True)
class Device:
    """The accelerators of one task or worker.

    Args:
        kind: "cpu", "gpu" or "tpu". "cpu" means no accelerator.
        variant: E.g. "H100" or "v5p-8". In a request, empty means any of that kind.
        count: GPUs, or TPU chips of one host.
        alternatives: In a request, other acceptable variants.
    """

    kind: str
    variant: str = ""
    count: int = 0
    alternatives: tuple[str, ...] = ()

    def accepts(self, have: "Device") -> bool:
        """Return whether devices of `have`'s kind and variant can serve this request, whatever the count."""
        if self.kind != have.kind:
            return False
        wanted = self.variant.casefold()
        offered = have.variant.casefold()
        return not wanted or wanted == offered or any(offered == other.casefold() for other in self.alternatives)

    def __str__(self) -> str:
        names = " or ".join(name for name in (self.variant, *self.alternatives) if name)
        return f"{self.kind} {names}" if names else self.kind


@dataclass(frozen=True, slots=True)
class Resources:
    """An amount in every dimension. Numbers of free capacity may be negative while lent CPUs are taken back."""

    cpu_millis: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    device: Device | None = None

    @property
    def accelerator(self) -> Device | None:
        """The device if it is an accelerator, else None."""
        return None if self.device is None or self.device.kind == "cpu" else self.device

    def fits(self, free: "Resources") -> bool:
        """Return whether `free` covers this request. A dimension without a request always fits."""
        if self.cpu_millis and self.cpu_millis > free.cpu_millis:
            return False
        if self.memory_bytes and self.memory_bytes > free.memory_bytes:
            return False
        if self.disk_bytes and self.disk_bytes > free.disk_bytes:
            return False
        need = self.accelerator
        if need is None:
            return True
        have = free.accelerator
        return have is not None and need.accepts(have) and need.count <= have.count

    def add(self, other: "Resources") -> "Resources":
        """Return the sum. Accelerators keep the variant of the side that has one (this side first)."""
        return self._combine(other, 1)

    def sub(self, other: "Resources") -> "Resources":
        """Return this minus `other`; may be negative."""
        return self._combine(other, -1)

    def times(self, count: int) -> "Resources":
        """Return the amount of `count` tasks with these resources."""
        device = self.accelerator
        if device is not None:
            device = Device(device.kind, device.variant, device.count * count)
        return Resources(self.cpu_millis * count, self.memory_bytes * count, self.disk_bytes * count, device)

    def _combine(self, other: "Resources", sign: int) -> "Resources":
        mine, theirs = self.accelerator, other.accelerator
        device = mine
        if theirs is not None:
            base = mine or Device(theirs.kind, theirs.variant, 0)
            device = Device(base.kind, base.variant, base.count + sign * theirs.count)
        return Resources(
            self.cpu_millis + sign * other.cpu_millis,
            self.memory_bytes + sign * other.memory_bytes,
            self.disk_bytes + sign * other.disk_bytes,
            device,
        )


NOTHING = Resources()

_CHIP_WEIGHT = 32.0
_BYTES_PER_CORE = 4 << 30


def weight(resources: Resources) -> float:
    """Return an amount's weight in cores: an accelerator counts 32, and 4 GiB of memory count one."""
    device = resources.accelerator
    chips = device.count * _CHIP_WEIGHT if device is not None else 0.0
    return chips + max(resources.cpu_millis / 1000, resources.memory_bytes / _BYTES_PER_CORE)


def format_cores(cpu_millis: int) -> str:
    """Return thousandths of a core in readable form: "4", "0.5"."""
    return f"{cpu_millis / 1000:.3f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A dimension in which a request does not fit.

    Args:
        need: The request, e.g. "4 cores". have: The available amount, e.g. "2". unit: The word after `have`.
        severity: (need - have) / need, above 0; 1 means that nothing is available.
    """

    dimension: str
    need: str
    have: str
    severity: float


def shortfalls(need: Resources, free: Resources) -> list[Shortfall]:
    """Return every dimension in which `need` exceeds `free`, worst first; empty if it fits."""
    found = []
    if need.cpu_millis > max(free.cpu_millis, 0):
        cores = f"{format_cores(need.cpu_millis)} {'core' if need.cpu_millis == 1000 else 'cores'}"
        severity = 1 - max(free.cpu_millis, 0) / need.cpu_millis
        found.append(Shortfall("cpu", cores, format_cores(max(free.cpu_millis, 0)), severity))
    for name, asked, there in (
        ("memory", need.memory_bytes, max(free.memory_bytes, 0)),
        ("disk", need.disk_bytes, max(free.disk_bytes, 0)),
    ):
        if asked > there:
            found.append(Shortfall(name, f"{format_size(asked)} of {name}", format_size(there), 1 - there / asked))
    device = need.accelerator
    if device is not None:
        have = free.accelerator
        there = max(have.count, 0) if have is not None and device.accepts(have) else 0
        if have is None or not device.accepts(have) or device.count > there:
            count = max(device.count, 1)
            found.append(Shortfall("device", f"{count} x {device}", str(there), 1 - there / count))
    found.sort(key=lambda item: -item.severity)
    return found


def amount_of(dimension: str, resources: Resources) -> int:
    """Return the amount of one dimension as a comparable number."""
    if dimension == "cpu":
        return resources.cpu_millis
    if dimension == "memory":
        return resources.memory_bytes
    if dimension == "disk":
        return resources.disk_bytes
    device = resources.accelerator
    return device.count if device is not None else 0


def validate_resources(resources: Resources) -> None:
    """Validate a request without the cluster's state.

    Raises:
        InvalidRequest: A dimension is negative, or the device's kind or count is invalid.
    """
    for name, value in (
        ("cpu", resources.cpu_millis),
        ("memory", resources.memory_bytes),
        ("disk", resources.disk_bytes),
    ):
        if value < 0:
            raise InvalidRequest(f"{name} is {value}; it must be 0 or more")
    device = resources.device
    if device is None:
        return
    if device.kind not in ("cpu", "gpu", "tpu"):
        raise InvalidRequest(f"device kind {device.kind!r} is unknown; it must be cpu, gpu or tpu")
    if device.kind != "cpu" and device.count < 1:
        raise InvalidRequest(f"device {device} has count {device.count}; it must be 1 or more")


def slice_hosts(device: Device | None) -> int | None:
    """Return the number of VMs in one slice of the device's type; None if it is not a TPU or its type is unknown."""
    if device is None or device.kind != "tpu" or not device.variant:
        return None
    try:
        return get_tpu_topology(device.variant).vm_count
    except InvalidRequest:
        return None


def whole_slices(device: Device, replicas: int) -> int:
    """Return the number of tasks, one per VM, in the fewest whole slices with at least `replicas`."""
    hosts = slice_hosts(device) or 1
    return -(-replicas // hosts) * hosts


def tpu_mistake(device: Device | None, replicas: int, group_by: str) -> str | None:
    """Return why no TPU matches the request, with a valid alternative; None if a TPU matches, or for other devices.

    Checks the types (also the alternatives), the chips of a VM and, for gangs of slices, the number of VMs.

    Args:
        device: The request; None for no device.
        replicas: The number of tasks.
        group_by: The coscheduling attribute; None for independent tasks.
    """
    if device is None or device.kind != "tpu" or not device.variant:
        return None
    shapes: list[TpuTopologyInfo] = []
    for variant in (device.variant, *device.alternatives):
        try:
            shapes.append(get_tpu_topology(variant))
        except InvalidRequest as error:
            return str(error)
    first = shapes[0]
    for shape in shapes:
        if device.count > shape.chips_per_vm:
            return f"needs {device.count} chips of one VM; a VM of {shape.name} has {shape.chips_per_vm}"
    if group_by != SLICE_ATTRIBUTE:
        return None
    for shape in shapes[1:]:
        if shape.vm_count != first.vm_count:
            return (
                f"alternatives must have as many VMs a slice: {first.name} has {first.vm_count},"
                f" {shape.name} has {shape.vm_count}"
            )
    if replicas % first.vm_count:
        right = whole_slices(device, replicas)
        return (
            f"needs {replicas} tasks on slices of {first.name}, which have {first.vm_count} VMs each;"
            f" replicas must be a multiple of that, e.g. {right}"
        )
    return None
