"""The replica of a job that this code runs as."""

from __future__ import annotations

import os
from contextvars import ContextVar

#: In the environment of a replica's program: its number.
REPLICA_ENV = "FRAY_REPLICA_INDEX"
_IRIS_ENV = "IRIS_TASK_INDEX"

_replica: ContextVar[int | None] = ContextVar("fray_replica", default=None)


def replica_index() -> int:
    """The number of the replica that this code runs in, from 0; 0 too outside of any job.

    For what only one of a job's replicas is to do, such as writing down a result that all of them have.
    """
    inside = _replica.get()
    if inside is not None:
        return inside
    return int(os.environ.get(REPLICA_ENV) or os.environ.get(_IRIS_ENV) or 0)


def enter_replica(index: int) -> None:
    """For backends: make `index` what `replica_index()` gives in this contextvars context."""
    _replica.set(index)
