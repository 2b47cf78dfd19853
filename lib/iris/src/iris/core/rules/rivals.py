"""Which of two workers of one name is the worker, and what is known of the other."""

from dataclasses import dataclass
from typing import Final

HEARD_MS: Final = 5000
"""A worker that was heard so short a time ago keeps its name."""


@dataclass(frozen=True, slots=True)
class Life:
    """One life of a worker, by which the controller tells two of one name apart.

    Args:
        instance_id: Its guardian's: what it holds of attempts is what counts.
        place: The boot of its host and its work directory, which one process at a time can use; empty: not told.
    """

    instance_id: str
    place: str = ""


def may_succeed(holder: Life, newcomer: Life, silent_ms: int) -> bool:
    """Whether a newcomer takes the session of the worker that holds it.

    The same guardian, and the same work directory in the same boot, are one host whose former process is gone. Any
    other is a copy as long as the holder is heard; after a reboot it is not.

    Args:
        holder: Whose session is open.
        newcomer: Who asks for it.
        silent_ms: For how long the holder was not heard.
    """
    same_place = bool(newcomer.place) and newcomer.place == holder.place
    return newcomer.instance_id == holder.instance_id or same_place or silent_ms >= HEARD_MS
