"""The replica index of the current code."""

from __future__ import annotations

import os
from contextvars import ContextVar

#: In the environment of a replica's program: its number.
REPLICA_ENV = "FRAY_REPLICA_INDEX"
_IRIS_ENV = "IRIS_TASK_INDEX"

_replica: ContextVar[int | None] = ContextVar("fray_replica", default=None)


def replica_index() -> int:
    """Return the index of the current replica, from 0. It is also 0 outside of any job.

    Use it for work that only one replica should do, such as writing a shared result.
    """
    inside = _replica.get()
    if inside is not None:
        return inside
    return int(os.environ.get(REPLICA_ENV) or os.environ.get(_IRIS_ENV) or 0)


def enter_replica(index: int) -> None:
    """For backends: make `replica_index()` return `index` in this contextvars context."""
    _replica.set(index)
