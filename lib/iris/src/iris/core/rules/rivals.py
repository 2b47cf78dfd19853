"""Decides which of two workers with the same name may connect."""

from dataclasses import dataclass
from typing import Final

HEARD_MS: Final = 5000
"""A worker whose last message is at most this old keeps its name."""


@dataclass(frozen=True, slots=True)
class Life:
    """One life of a worker, to distinguish two workers with the same name.

    Args:
        instance_id: Its guardian's id.
        place: Its host's boot and its work directory; empty if unknown.
    """

    instance_id: str
    place: str = ""


def may_succeed(holder: Life, newcomer: Life, silent_ms: int) -> bool:
    """Return whether a newcomer may replace the connected worker.

    The same guardian, or the same work directory in the same boot, means one host whose earlier process has exited. Any
    other newcomer is a copy while the connected worker still sends messages.

    Args:
        holder: The worker with the open session.
        newcomer: The worker that opens another session.
        silent_ms: How long the holder has been silent.
    """
    same_place = bool(newcomer.place) and newcomer.place == holder.place
    return newcomer.instance_id == holder.instance_id or same_place or silent_ms >= HEARD_MS
