"""The share of its machine that this process may use, as older programs ask for it."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_CGROUP: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class TaskResources:
    """Memory in bytes and whole cores, at least 1."""

    memory_bytes: int
    cpu_cores: int

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None, cgroup: Path = _CGROUP) -> "TaskResources":
        """Return the limits of this task's control group, as far as it has some, and else the whole machine's.

        Args:
            environ: Variables to read (IRIS_MEMORY_BYTES and IRIS_CPU_CORES win); None for `os.environ`.
            cgroup: Where the control group is.
        """
        variables = os.environ if environ is None else environ
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        limit = _first_number(cgroup / "memory.max")
        memory = int(variables.get("IRIS_MEMORY_BYTES") or min(machine, limit or machine))
        cores = variables.get("IRIS_CPU_CORES")
        return cls(memory, max(1, math.ceil(float(cores))) if cores else _cores(cgroup))


def _cores(cgroup: Path) -> int:
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return there
    return there if quota == "max" else max(1, min(there, math.ceil(int(quota) / int(period))))


def _first_number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
