"""Jobs and actors inside this process. The client loads when it is first asked for: child processes need it not."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fray.backends.local.client import CAPABILITIES, PROCESS_CAPABILITIES, LocalClient, connect

__all__ = ["CAPABILITIES", "PROCESS_CAPABILITIES", "LocalClient", "connect"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fray.backends.local' has no attribute {name!r}")
    from fray.backends.local import client

    return getattr(client, name)
