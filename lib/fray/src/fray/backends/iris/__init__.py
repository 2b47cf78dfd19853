"""Jobs and actors on an Iris cluster. The client loads on first use: actors' tasks do not need it.

Here belongs translation between fray and `iris.client`, which no other code of fray imports. The cluster decides.
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
