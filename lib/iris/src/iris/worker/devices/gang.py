"""The variables by which the members of a gang find each other. Pure."""

from collections.abc import Callable
from typing import Final
from zlib import crc32

from iris.domain.resources import slice_hosts
from iris.worker.types import StartRequest

_LOOPBACK: Final = "127.0.0.1"
_FIRST_PORT: Final = 20_000
_PORTS: Final = 10_000


def gang_variables(request: StartRequest, interface_of: Callable[[str], str]) -> dict[str, str]:
    """Return the variables of a gang's member; those that the job sets are left out.

    On TPUs: TPU_WORKER_*, and for several slices MEGASCALE_*. Else MASTER_ADDR and MASTER_PORT, on GPUs with hints for
    NCCL. The port differs between starts, so that a taken port does not stop the next start.

    Args:
        request: The member.
        interface_of: Returns the network interface with an address; empty if there is none.
    """
    gang, device = request.gang, request.launch.resources.accelerator
    if gang is None:
        return {}
    hosts = [host or _LOOPBACK for host in gang.hosts]
    port = str(_FIRST_PORT + crc32(f"{request.launch.job_id}:{gang.attempt}".encode()) % _PORTS)
    if device is not None and device.kind == "tpu":
        found = _of_tpu(request.task_index, hosts, slice_hosts(device) or len(hosts), port)
    else:
        found = {"MASTER_ADDR": hosts[0], "MASTER_PORT": port}
        interface = interface_of(gang.hosts[request.task_index]) if device is not None else ""
        if interface:
            found |= {"NCCL_SOCKET_IFNAME": f"={interface}", "GLOO_SOCKET_IFNAME": interface}
    return {name: value for name, value in found.items() if name not in request.launch.env_vars}


def _of_tpu(index: int, hosts: list[str], per_slice: int, port: str) -> dict[str, str]:
    slices, own = len(hosts) // per_slice, index // per_slice
    found = {
        "TPU_WORKER_ID": str(index % per_slice),
        "TPU_WORKER_HOSTNAMES": ",".join(hosts[own * per_slice : (own + 1) * per_slice]),
    }
    if slices > 1:
        found |= {
            "MEGASCALE_COORDINATOR_ADDRESS": f"{hosts[0]}:{port}",
            "MEGASCALE_NUM_SLICES": str(slices),
            "MEGASCALE_PORT": port,
            "MEGASCALE_SLICE_ID": str(own),
        }
    return found


def interface_of(address: str) -> str:
    """Return the network interface with an address; empty if there is none."""
    import psutil

    if not address:
        return ""
    found = psutil.net_if_addrs().items()
    return next((name for name, own in found if any(item.address == address for item in own)), "")
