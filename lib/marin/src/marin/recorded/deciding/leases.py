"""The state of a lease in words, and whether it may be cleared."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from rigging.lease.identity import HolderState, process_of
from rigging.lease.record import HEARTBEAT_TIMEOUT, Lease, StoredLease
from rigging.lease.staleness import Evidence, is_stale
from rigging.text.tables import duration


class LeaseState(StrEnum):
    """The state of a lease, as seen from this machine."""

    ALIVE = "alive"
    """Its holder is a process of this machine that runs."""
    STOPPED = "stopped"
    """Its holder is a process of this machine that is stopped."""
    HELD = "held"
    """Its holder is not visible from here, and may have renewed it recently."""
    STALE = "stale"
    """Its holder is not visible from here, and its renewal is so late that others may take it."""
    GONE = "gone"
    """Its holder was a process of this machine, which has ended."""
    UNREADABLE = "unreadable"
    """The lock file is damaged: any process may take it."""


CLEARABLE: Final = frozenset({LeaseState.STALE, LeaseState.GONE, LeaseState.UNREADABLE})


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """A lease, as observed once.

    Attributes:
        path: The lock file.
        stored: Its content.
        state: Its state.
        holder: The holder's id; None if unreadable.
        age: Seconds since the last renewal, by this machine's clock; None if unreadable.
    """

    path: str
    stored: StoredLease
    state: LeaseState
    holder: str | None
    age: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the lease as an entry of `marin locks list --json`."""
        return {
            "lock": self.path,
            "state": str(self.state),
            "holder": self.holder,
            "age_seconds": self.age,
            "clearable": self.state in CLEARABLE,
        }


def judge(path: str, stored: StoredLease, holder: HolderState, now: float, unchanged_seconds: float = 0.0) -> LeaseSeen:
    """Return the state of a lease.

    Args:
        path: The lock file.
        stored: Its content.
        holder: The state of the holder's process, as known to this machine.
        now: The current time, in seconds since the epoch.
        unchanged_seconds: The time for which the lock file has been observed without a change.
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
        evidence = Evidence(holder, unchanged_seconds, age, stored.age_seconds)
        state = LeaseState.STALE if is_stale(evidence, HEARTBEAT_TIMEOUT) else LeaseState.HELD
    return LeaseSeen(path, stored, state, lease.worker_id, age)


def why_gone(seen: LeaseSeen | None) -> str | None:
    """Return why an output is not running although its status says so; None if it may be running.

    Args:
        seen: Its lease, or None.
    """
    if seen is None:
        return "its run is gone: nobody holds its lease"
    if seen.state not in CLEARABLE:
        return None
    if seen.state is LeaseState.UNREADABLE:
        return "its run is gone: its lease is damaged"
    pid = process_of(seen.holder or "")
    if seen.state is LeaseState.GONE:
        who = "the process that held its lease has ended" if pid is None else f"process {pid} of this machine has ended"
    else:
        who = f"the lease of {seen.holder} has expired"
    return f"its run is gone: {who}, last seen {duration(seen.age)} ago"


def how_held(seen: LeaseSeen) -> str:
    """Describe the holder of a lease, and whether its renewal is late."""
    held = seen.holder or "-"
    if seen.state is LeaseState.STOPPED:
        return f"{held}, a process that is stopped"
    if seen.state is LeaseState.HELD and seen.age is not None and seen.age > HEARTBEAT_TIMEOUT:
        return f"{held}, last seen {duration(seen.age)} ago: its run may be gone"
    return held
