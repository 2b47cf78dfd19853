"""What is to be said of a lease, and whether it may be cleared."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from rigging.lease.identity import HolderState
from rigging.lease.record import HEARTBEAT_TIMEOUT, Lease, StoredLease
from rigging.lease.staleness import Evidence, is_stale


class LeaseState(StrEnum):
    """How a lease stands, seen from this machine."""

    ALIVE = "alive"
    """Its holder is a process of this machine that runs."""
    STOPPED = "stopped"
    """Its holder is a process of this machine that is stopped."""
    HELD = "held"
    """Its holder cannot be seen from here, and renewed it lately, or may have."""
    STALE = "stale"
    """Its holder cannot be seen from here, and has not renewed it for so long that others may take it."""
    GONE = "gone"
    """Its holder was a process of this machine, which has ended."""
    UNREADABLE = "unreadable"
    """The lock file is damaged: anybody may take it."""


CLEARABLE: Final = frozenset({LeaseState.STALE, LeaseState.GONE, LeaseState.UNREADABLE})


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """A lease as one look found it.

    Attributes:
        path: The lock file.
        stored: Its content.
        state: How it stands.
        holder: The holder's id; None when that is unreadable.
        age: Seconds since it was last renewed, by this machine's clock; None when that is unreadable.
    """

    path: str
    stored: StoredLease
    state: LeaseState
    holder: str | None
    age: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the lease as `marin locks list --json` lists it."""
        return {
            "lock": self.path,
            "state": str(self.state),
            "holder": self.holder,
            "age_seconds": self.age,
            "clearable": self.state in CLEARABLE,
        }


def judge(path: str, stored: StoredLease, holder: HolderState, now: float) -> LeaseSeen:
    """Say how a lease stands.

    Args:
        path: The lock file.
        stored: Its content.
        holder: What this machine knows of the holder's process.
        now: The time, in seconds since the epoch.
    """
    lease = Lease.from_bytes(stored.content)
    if lease is None:
        return LeaseSeen(path, stored, LeaseState.UNREADABLE, None, None)
    age = now - lease.timestamp
    known = {
        HolderState.ALIVE: LeaseState.ALIVE,
        HolderState.STOPPED: LeaseState.STOPPED,
        HolderState.GONE: LeaseState.GONE,
    }
    state = known.get(holder)
    if state is None:
        evidence = Evidence(holder, 0.0, age, stored.age_seconds)
        state = LeaseState.STALE if is_stale(evidence, HEARTBEAT_TIMEOUT) else LeaseState.HELD
    return LeaseSeen(path, stored, state, lease.worker_id, age)
