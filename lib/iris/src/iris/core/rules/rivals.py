"""Which of two workers with the same name is genuine, and what is known about the other."""

from dataclasses import dataclass
from typing import Final

HEARD_MS: Final = 5000
"""A worker that was heard within this time keeps its name."""


@dataclass(frozen=True, slots=True)
class Life:
    """One life of a worker, which distinguishes two of the same name.

    Args:
        instance_id: Its guardian's id. The guardian's attempts count.
        place: Its host's boot and its work directory, which one process at a time can use; empty if unknown.
    """

    instance_id: str
    place: str = ""


def may_succeed(holder: Life, newcomer: Life, silent_ms: int) -> bool:
    """Return whether a newcomer takes over the session of the worker that holds it.

    The same guardian, or the same work directory in the same boot, means one host whose earlier process is gone. Any
    other newcomer is a copy while the holder is heard; after a reboot it is not.

    Args:
        holder: The worker with the open session.
        newcomer: The worker that asks for it.
        silent_ms: How long the holder was not heard.
    """
    same_place = bool(newcomer.place) and newcomer.place == holder.place
    return newcomer.instance_id == holder.instance_id or same_place or silent_ms >= HEARD_MS
