"""The resources that this process may use, in the form of iris's predecessor."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rigging.process.control_groups import CGROUP_ROOT, OWN_CGROUPS, cgroup_limits


@dataclass(frozen=True, slots=True)
class TaskResources:
    """Memory in bytes and whole cores, at least 1."""

    memory_bytes: int
    cpu_cores: int

    @classmethod
    def from_environment(
        cls, environ: Mapping[str, str] | None = None, groups: Path = CGROUP_ROOT, own: Path = OWN_CGROUPS
    ) -> "TaskResources":
        """Return the limits of this task's control groups, or the whole machine's resources without limits.

        Args:
            environ: The variables to read (IRIS_MEMORY_BYTES and IRIS_CPU_CORES win); None for `os.environ`.
            groups: The mount point of the control group filesystems.
            own: The content of /proc/self/cgroup.
        """
        variables = os.environ if environ is None else environ
        cpu_millis, limit = cgroup_limits(groups, own.read_text() if own.exists() else "")
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        memory = int(variables.get("IRIS_MEMORY_BYTES") or min(machine, limit or machine))
        if given := variables.get("IRIS_CPU_CORES"):
            return cls(memory, max(1, math.ceil(float(given))))
        there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return cls(memory, there if cpu_millis is None else max(1, min(there, math.ceil(cpu_millis / 1000))))
