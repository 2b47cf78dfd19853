"""Jobs on a Slurm cluster with a shared folder. The client is imported on first use, because jobs need only `runner`.

Slurm places, stops and requeues jobs. `runner` retries failures inside the job's own allocation, so jobs need no client
while they run.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fray.backends.slurm.client import CAPABILITIES, SlurmClient, connect

__all__ = ["CAPABILITIES", "SlurmClient", "connect"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fray.backends.slurm' has no attribute {name!r}")
    from fray.backends.slurm import client

    return getattr(client, name)
