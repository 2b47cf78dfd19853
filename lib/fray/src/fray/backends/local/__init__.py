"""Jobs and actors on this machine. The client is imported on first use, because child processes do not need it.

Threads, processes and forks belong here. The life of a job is in `common.job_life`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fray.backends.local.client import CAPABILITIES, PROCESS_CAPABILITIES, LocalClient, connect

__all__ = ["CAPABILITIES", "PROCESS_CAPABILITIES", "LocalClient", "connect"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fray.backends.local' has no attribute {name!r}")
    from fray.backends.local import client

    return getattr(client, name)
