"""Requests for TPUs must match their topology: whole hosts, whole slices."""

from iris.domain.resources import Device
from rigging.errors import InvalidRequest
from rigging.topology import TpuTopologyInfo, get_tpu_topology

SLICE_ATTRIBUTE = "tpu-name"


def slice_hosts(device: Device | None) -> int | None:
    """VMs of one slice of the device's type; None when it is no TPU or of no known type."""
    if device is None or device.kind != "tpu" or not device.variant:
        return None
    try:
        return get_tpu_topology(device.variant).vm_count
    except InvalidRequest:
        return None


def whole_slices(device: Device, replicas: int) -> int:
    """The number of tasks, one a VM, of the smallest number of whole slices that has at least `replicas`."""
    hosts = slice_hosts(device) or 1
    return -(-replicas // hosts) * hosts


def tpu_mistake(device: Device | None, replicas: int, group_by: str) -> str | None:
    """Return why no TPU is built as requested, with a valid request; None when one is, or for other devices.

    Checked are the types (the alternatives alike), the chips of a VM and, for gangs of slices, the number of VMs.

    Args:
        device: The request; None: no device.
        replicas: Number of tasks.
        group_by: The coscheduling attribute; None: tasks by themselves.
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
