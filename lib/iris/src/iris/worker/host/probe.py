"""Measures the resources of this machine, within the limits of this process."""

import contextlib
import ipaddress
import os
import platform
import re
import shutil
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from iris.domain.constraints import DISK_SIZE_ATTRIBUTE
from iris.domain.resources import Resources
from iris.python_tools.programs import python_programs
from iris.sched.pythons import PYTHON_VERSIONS_ATTRIBUTE
from iris.worker.host.oom import oom_counters
from rigging.process.control_groups import CGROUP_ROOT, OWN_CGROUPS, cgroup_limits


def place_of(work_dir: Path, boot: Path = Path("/proc/sys/kernel/random/boot_id")) -> str:
    """Return an identifier of the host's boot and the work directory; a copy of the directory has another one.

    Args:
        work_dir: The worker's directory.
        boot: The kernel's id of the boot; if empty, the result is empty.
    """
    try:
        status = work_dir.stat()
        return f"{boot.read_text().strip()}:{status.st_dev}:{status.st_ino}"
    except OSError:
        return ""


def _cpus() -> int:
    return len(os.sched_getaffinity(0))


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def probe_resources(
    work_dir: Path,
    groups: Path = CGROUP_ROOT,
    own: Path = OWN_CGROUPS,
    cpus: Callable[[], int] = _cpus,
    memory: Callable[[], int] = _memory_bytes,
) -> Resources:
    """Return cpu, memory and the free disk below `work_dir`, within machine, affinity and cgroup limits.

    Args:
        work_dir: The worker's directory.
        groups: The mount point of the cgroup filesystems.
        own: A file like /proc/self/cgroup.
        cpus: Number of cpus that this process may use.
        memory: Bytes of memory of this machine.
    """
    cpu_millis = cpus() * 1000
    memory_bytes = memory()
    cpu_limit, memory_limit = cgroup_limits(groups, own.read_text() if own.exists() else "")
    if cpu_limit is not None:
        cpu_millis = max(1, min(cpu_millis, cpu_limit))
    if memory_limit is not None:
        memory_bytes = min(memory_bytes, memory_limit)
    return Resources(cpu_millis, memory_bytes, free_disk(work_dir))


def free_disk(work_dir: Path) -> int:
    """Return the bytes that can currently be written below `work_dir`. Raises OSError."""
    return shutil.disk_usage(work_dir).free


def own_oom_counters(groups: Path = CGROUP_ROOT, own: Path = OWN_CGROUPS) -> list[Path]:
    """Return the files in which the kernel counts out-of-memory kills in this process's control groups."""
    return oom_counters(groups, own.read_text() if own.exists() else "")


def disk_size(work_dir: Path) -> dict[str, str]:
    """Return the attribute with the total size of the disk, regardless of its free space."""
    return {DISK_SIZE_ATTRIBUTE: str(shutil.disk_usage(work_dir).total)}


def probe_attributes() -> dict[str, str]:
    """Return the attributes of this machine for constraints."""
    return {
        "hostname": socket.gethostname(),
        "os": platform.system().lower(),
        "arch": platform.machine(),
        PYTHON_VERSIONS_ATTRIBUTE: ",".join(python_versions(os.environ)),
    }


def python_versions(environ: Mapping[str, str]) -> list[str]:
    """Return the major.minor versions of Python installed here, judged by their names only.

    Includes those on the PATH and those that uv installed.
    """
    data = environ.get("XDG_DATA_HOME") or os.path.join(environ.get("HOME", ""), ".local", "share")
    managed = Path(environ.get("UV_PYTHON_INSTALL_DIR") or os.path.join(data, "uv", "python"))
    found = {program.rpartition("python")[2] for program in python_programs("", environ.get("PATH", ""))}
    found |= {
        match[1] for path in managed.glob("cpython-*") if (match := re.match(r"cpython-([0-9]+\.[0-9]+)", path.name))
    }
    found.add(f"{sys.version_info[0]}.{sys.version_info[1]}")
    return sorted(found, key=lambda version: [int(number) for number in version.split(".")])


def source_address(controller_address: str) -> str:
    """Return this host's address for machines on the way to "host:port"; empty if only this host can reach it.

    The address is the system's source address for that route; nothing is sent. IPv6 addresses are in brackets.
    """
    host, _, port = controller_address.rpartition(":")
    with contextlib.suppress(OSError, ValueError):
        choices = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
        family, kind, protocol, _, where = choices[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(where)
            own = ipaddress.ip_address(probe.getsockname()[0])
        if not own.is_loopback and not own.is_unspecified:
            return f"[{own}]" if own.version == 6 else str(own)
    return ""
