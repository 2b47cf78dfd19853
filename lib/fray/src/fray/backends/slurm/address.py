"""The address of a Slurm cluster: `slurm://PARTITION?account=...&time=...&dir=...`."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

from rigging.errors import InvalidRequest

DEFAULT_DIR: Final = "~/.fray/slurm"
_OPTION: Final = re.compile(r"[a-z][a-z0-9-]*")
_OURS: Final = {
    "array", "chdir", "comment", "cpus-per-task", "error", "export", "gpus-per-task", "job-name", "mem-per-cpu",
    "no-requeue", "ntasks", "open-mode", "output", "parsable", "partition", "requeue", "signal", "test-only", "wait",
    "wrap",
}  # fmt: skip
"""Options of sbatch that this backend sets itself."""


@dataclass(frozen=True, slots=True)
class SlurmAddress:
    """Where jobs go.

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
        return f"slurm://{quote(self.partition)}?{query}"

    def arguments(self) -> list[str]:
        """Return the address as options of `sbatch`."""
        chosen = [f"--partition={self.partition}"] if self.partition else []
        return [*chosen, *(f"--{name}={value}" if value else f"--{name}" for name, value in self.options)]


def parse_address(address: str | None) -> SlurmAddress:
    """Return the address in a spec, after "slurm://".

    Raises:
        InvalidRequest: An option is not one of sbatch's, or this backend sets it itself.
    """
    partition, _, query = (address or "").partition("?")
    directory, options = DEFAULT_DIR, []
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "dir":
            directory = value
        elif name in _OURS or not _OPTION.fullmatch(name):
            raise InvalidRequest(
                f"fray client 'slurm://{address}': the option {name!r} is not allowed; allowed are dir=FOLDER and "
                "options of sbatch that no job sets itself, e.g. account, time, qos, constraint"
            )
        else:
            options.append((name, value))
    folder = Path(os.path.abspath(os.path.expanduser(directory)))
    if "%" in str(folder):
        raise InvalidRequest(f"fray client 'slurm://{address}': dir={folder} must not contain '%'; sbatch expands it")
    return SlurmAddress(partition.strip("/"), tuple(options), folder)
