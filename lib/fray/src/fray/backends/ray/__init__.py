"""Jobs and actors on a Ray cluster. The client, and ray with it, is imported on first use.

Only this folder, its harness in `fray.testing` and `marin.run` import ray. Code that runs in Ray's worker processes is
in `worker`.
"""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fray.backends.ray.capabilities import CAPABILITIES
    from fray.backends.ray.client import RayClient, connect

__all__ = ["CAPABILITIES", "RayClient", "connect"]

# Else Ray notices that `uv run` started us, ships the working directory and has every worker process build an
# environment by `uv run` of its own, with another Ray, for minutes. It reads this when it is first imported.
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fray.backends.ray' has no attribute {name!r}")
    if name == "CAPABILITIES":
        from fray.backends.ray import capabilities

        return capabilities.CAPABILITIES
    from fray.backends.ray import client

    return getattr(client, name)
