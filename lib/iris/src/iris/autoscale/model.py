"""Slices and the answers of providers. Pure."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

from iris.domain.ids import WorkerId

SLICE_ATTRIBUTE: Final = "slice"
"""The attribute with the name of a worker's slice."""


class SliceState(IntEnum):
    """The states of a slice. Numbers are stored."""

    WANTED = 1  # stored; the provider was not asked yet
    REQUESTED = 2  # the provider may have been asked
    BOOTING = 3  # the provider has it; not all of its hosts have joined
    JOINED = 4  # all of its hosts have joined
    LEAVING = 5  # to be deleted; the provider may still have it
    GONE = 6  # deleted or lost, and confirmed
    FAILED = 7  # never made, or lost although a user asked for it; the outcome or the reason says why

    @property
    def is_over(self) -> bool:
        """Whether the provider has nothing of the slice."""
        return self >= SliceState.GONE

    @property
    def is_booting(self) -> bool:
        """Whether it is on its way: its hosts have not all joined yet."""
        return self < SliceState.JOINED


class Outcome(StrEnum):
    """The outcome of a call to a provider. All but DONE close a group, pool or project for a time (`closures`)."""

    DONE = "done"
    STOCK_OUT = "stock-out"  # closes the group
    QUOTA = "quota"  # closes the group's quota pool, from its allocation tier up
    RATE = "rate"  # closes the project
    PERMISSION = "permission"  # closes the group until the cluster file changes
    CONFIG = "config"  # closes the group until the cluster file changes
    UNKNOWN = "unknown"  # closes the group, briefly; the slice may exist


@dataclass(frozen=True, slots=True)
class Answer:
    """A provider's answer.

    Args:
        outcome: The outcome.
        words: The provider's own words; empty for DONE. Never contains a secret.
        hosts: The hosts that failed, where hosts have names that come back (manual hosts).
    """

    outcome: Outcome
    words: str = ""
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SliceRecord:
    """A slice, as stored.

    Args:
        name: The slice's name, never used again.
        group: The name of its scale group.
        state: Its state, since `changed_ms`.
        created_ms: When it was wanted (Unix ms).
        ready_ms: When the provider first listed it as READY; 0 before. The boot deadline of reserved slices, which may
            queue for hours, runs from here; that of others from `created_ms`.
        joined_ms: When all of its hosts had joined; 0 before.
        used_ms: When it last had work, or joined.
        unlisted: How many complete lists in turn lacked it.
        outcome, words: The last answer of the provider; None before the first.
        reason: Why it leaves or is gone.
        asked_by: The user who created it with `create-slice`; empty for the autoscaler's, which alone it releases.
    """

    name: str
    group: str
    state: SliceState
    created_ms: int
    changed_ms: int
    ready_ms: int = 0
    joined_ms: int = 0
    used_ms: int = 0
    unlisted: int = 0
    outcome: Outcome | None = None
    words: str = ""
    reason: str = ""
    asked_by: str = ""

    @property
    def number(self) -> int:
        """Return the number at the end of the name; -1 for none."""
        number = self.name.rpartition("-")[2]
        return int(number) if number.isdecimal() else -1


@dataclass(frozen=True, slots=True)
class SliceUse:
    """The use of a slice's hosts, as the controller knows it.

    Args:
        joined: The number of connected hosts.
        busy: The number of hosts with assigned, building, running or stopping attempts.
        closed: The number of connected hosts without attempts that get none: cordoned, in trouble or late.
        is_needed: Whether a waiting gang or reservation counts on it, or an operator has cordoned a host.
        lost: Numbers of hosts that were lost after they had joined.
        broken: Why the provider says that it will not come back; empty if it may.
    """

    joined: int = 0
    busy: int = 0
    closed: int = 0
    is_needed: bool = False
    lost: tuple[int, ...] = ()
    broken: str = ""


def worker_id_of(slice_name: str, number: int) -> WorkerId:
    """Return the worker id of a slice's host."""
    return WorkerId(f"{slice_name}-w{number}")
