"""Jobs and actors on an Iris cluster. The client is imported on first use, because tasks that serve actors do not need
it.

Only translation between fray and `iris.client` belongs here. No other code of fray imports iris, and the cluster makes
all decisions.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fray.backends.iris.client import CAPABILITIES, IrisBackend, connect

__all__ = ["CAPABILITIES", "IrisBackend", "connect"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fray.backends.iris' has no attribute {name!r}")
    from fray.backends.iris import client

    return getattr(client, name)
