"""Jobs and actors on a Ray cluster: the way in, which imports ray only when a client is made."""

import os
from typing import TYPE_CHECKING, Any

from fray.backends.ray_capabilities import CAPABILITIES
from fray.client import Client

if TYPE_CHECKING:
    from fray.backends.ray_client import RayClient
    from fray.client import RunsRayFunctions

    def _declared(client: RayClient) -> RunsRayFunctions:
        return client


__all__ = ["CAPABILITIES", "RayClient", "connect"]

# Else Ray notices that `uv run` started us, ships the working directory and has every worker process build an
# environment by `uv run` of its own, with another Ray, for minutes. It reads this when it is first imported.
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")


def connect(address: str | None) -> Client:
    """The registry's way in.

    Args:
        address: "host:port" of a Ray client server (`ray://host:port`); None for the cluster of the job this runs in,
            else the one that RAY_ADDRESS names, else one that runs on this machine, else one started for this process.
    """
    from fray.backends import ray_client

    return ray_client.connect(address)


def __getattr__(name: str) -> Any:
    if name == "RayClient":
        from fray.backends.ray_client import RayClient

        return RayClient
    raise AttributeError(f"module 'fray.backends.ray' has no attribute {name!r}")
