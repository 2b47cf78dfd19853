"""What Ray says of its cluster, with types."""

from typing import Any, cast

import ray


def nodes() -> list[dict[str, Any]]:
    """All nodes, the dead ones too."""
    return cast("list[dict[str, Any]]", ray.nodes())  # type: ignore[no-untyped-call]


def resources() -> dict[str, float]:
    """What all living nodes have together."""
    return cast("dict[str, float]", ray.cluster_resources())  # type: ignore[no-untyped-call]


def free_resources() -> dict[str, float]:
    """What of that is not taken; Ray is a moment behind."""
    return cast("dict[str, float]", ray.available_resources())  # type: ignore[no-untyped-call]


def is_remote() -> bool:
    """Whether this process is connected through `ray://`, and so is not on a node of the cluster."""
    return bool(ray.util.client.ray.is_connected())  # type: ignore[no-untyped-call]
