"""Parses the accelerators on a worker's command line, and derives the host's attributes for gangs. Pure."""

import re
from typing import Final

from iris.cluster.constraints import WellKnownAttribute
from iris.cluster.types import gpu_device
from iris.domain.resources import Device
from rigging.errors import InvalidRequest
from rigging.topology import get_tpu_topology

_GPUS: Final = re.compile(r"(?P<variant>[A-Za-z][A-Za-z0-9_.-]{0,62}):(?P<count>[0-9]{1,4})")
_MOST_GPUS: Final = 1024


def declared_device(tpu: str | None, gpu: str | None) -> Device | None:
    """Return the accelerators of a host, or None.

    Args:
        tpu: Type of the host's slice, e.g. "v5p-8"; None for no TPU.
        gpu: "TYPE:N", e.g. "H100:8"; None for no GPUs.

    Raises:
        InvalidRequest: Both options are given, the type is unknown, or the text is not a type with a count.
    """
    if tpu is not None and gpu is not None:
        raise InvalidRequest(f"a worker offers --tpu {tpu} or --gpu {gpu}, not both")
    if tpu is not None:
        try:
            shape = get_tpu_topology(tpu)
        except InvalidRequest as error:
            raise InvalidRequest(f"--tpu {tpu!r}: {error}") from None
        return Device("tpu", tpu, shape.chips_per_vm)
    if gpu is None:
        return None
    match = _GPUS.fullmatch(gpu)
    if match is None or not 1 <= int(match["count"]) <= _MOST_GPUS:
        raise InvalidRequest(f"--gpu {gpu!r}: write TYPE:N with N from 1 to {_MOST_GPUS}, e.g. H100:8")
    made = gpu_device(match["variant"], int(match["count"]))
    return Device(made.kind, made.variant, made.count)


def device_attributes(
    device: Device | None, slice_name: str | None, slice_index: int | None, worker_id: str
) -> dict[str, str]:
    """Return the attributes of a declared host, like those of a cluster file's slices.

    Args:
        device: The host's accelerators.
        slice_name: The name of the slice, whose hosts a gang uses together; None for a single host.
        slice_index: The host's number in its slice, which orders the tasks of a gang; None to order by name.
        worker_id: The slice name of a single host without `slice_name`.

    Raises:
        InvalidRequest: The type has several hosts per slice and no slice was named, or the index is out of range.
    """
    if slice_index is not None and slice_name is None:
        raise InvalidRequest(f"--slice-index {slice_index} needs --slice NAME")
    numbered = {} if slice_index is None else {WellKnownAttribute.TPU_WORKER_ID.value: str(slice_index)}
    if device is None:
        return numbered
    found = {WellKnownAttribute.DEVICE_TYPE.value: device.kind, WellKnownAttribute.DEVICE_VARIANT.value: device.variant}
    if device.kind == "gpu":
        return found | numbered | ({} if slice_name is None else {WellKnownAttribute.POOL.value: slice_name})
    hosts = get_tpu_topology(device.variant).vm_count
    if hosts > 1 and slice_name is None:
        raise InvalidRequest(
            f"--tpu {device.variant}: a slice of it has {hosts} hosts; give --slice NAME, the same on all of them"
        )
    if slice_index is not None and slice_index >= hosts:
        raise InvalidRequest(f"--slice-index {slice_index}: a slice of {device.variant} has hosts 0 to {hosts - 1}")
    return found | numbered | {WellKnownAttribute.TPU_NAME.value: slice_name or worker_id}
