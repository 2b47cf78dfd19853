"""The address of a Slurm cluster: `slurm://PARTITION?account=...&time=...&dir=...`."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlencode

from rigging.errors import InvalidRequest

DEFAULT_DIR: Final = "~/.fray/slurm"
_PARTITIONS: Final = re.compile(r"[\w.,+@-]*/?")
_OPTION: Final = re.compile(r"[a-z][a-z0-9-]*")
_OURS: Final = {
    "array", "chdir", "clusters", "comment", "cpus-per-task", "error", "export", "gpus-per-task", "help", "job-name",
    "mem-per-cpu", "no-requeue", "ntasks", "open-mode", "output", "parsable", "partition", "quiet", "requeue", "signal",
    "test-only", "usage", "version", "wait", "wrap",
}  # fmt: skip
"""Options of sbatch that this backend sets itself, or that hide the job's id. sbatch takes beginnings of them, too."""
_FLAGS: Final = {
    "contiguous", "exclusive", "get-user-env", "hold", "nice", "no-kill", "overcommit", "oversubscribe", "propagate",
    "reboot", "spread-job", "stepmgr", "use-min-nodes", "verbose",
}  # fmt: skip
"""Options of sbatch that need no value. Without a value, any other option takes the next option for it."""


@dataclass(frozen=True, slots=True)
class SlurmAddress:
    """The partition, the options of sbatch and the folder of jobs.

    Args:
        partition: The partition; "" for the cluster's default.
        options: More options of `sbatch`, without dashes, e.g. ("account", "lab").
        directory: The folder for jobs' files, shared by all nodes.
    """

    partition: str = ""
    options: tuple[tuple[str, str], ...] = ()
    directory: Path = Path(DEFAULT_DIR)

    @property
    def spec(self) -> str:
        """The value of FRAY_CLIENT for this address."""
        query = urlencode([*self.options, ("dir", str(self.directory))])
        return f"slurm://{self.partition}?{query}"

    def arguments(self) -> list[str]:
        """Return the address as options of `sbatch`."""
        chosen = [f"--partition={self.partition}"] if self.partition else []
        return [*chosen, *(f"--{name}={value}" if value else f"--{name}" for name, value in self.options)]


def parse_address(address: str | None) -> SlurmAddress:
    """Return the address in a spec, after "slurm://".

    Raises:
        InvalidRequest: An option is not one of sbatch's, this backend sets it itself, or it has no value.
    """
    partition, _, query = (address or "").partition("?")
    if not _PARTITIONS.fullmatch(partition):
        raise InvalidRequest(
            f"fray client 'slurm://{address}': {partition!r} is no name of a partition; write "
            "slurm://PARTITION?OPTION=VALUE&OPTION=VALUE"
        )
    directory, options = DEFAULT_DIR, []
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "dir":
            directory = value
        elif any(each.startswith(name) for each in _OURS) or not _OPTION.fullmatch(name):
            raise InvalidRequest(
                f"fray client 'slurm://{address}': the option {name!r} is not allowed; allowed are dir=FOLDER and "
                "options of sbatch that no job sets itself, e.g. account, time, qos, constraint; processors, memory "
                "and GPUs are in a job's ResourceConfig"
            )
        else:
            options.append((name, value))
        if not value and name not in _FLAGS:
            raise InvalidRequest(
                f"fray client 'slurm://{address}': the option {name!r} has no value; write {name}=VALUE, or leave it "
                f"out. Without a value are allowed: {', '.join(sorted(_FLAGS))}"
            )
    folder = Path(os.path.abspath(os.path.expanduser(directory)))
    if "%" in str(folder):
        raise InvalidRequest(f"fray client 'slurm://{address}': dir={folder} must not contain '%'; sbatch expands it")
    return SlurmAddress(partition.strip("/"), tuple(options), folder)
