"""Whether a lease still counts: by its holder's process, by renewals seen, by the storage's clock, by its timestamp.

A process that runs on this machine keeps its lease, whatever any clock says; so does one that is stopped, until a
person decides (`python -m rigging.lease take`). One that has ended has none. Of others only the lease can be seen.
"""

import logging
import os
import sys
from dataclasses import dataclass

from rigging.clock import SYSTEM_CLOCK, Clock
from rigging.lease.identity import HolderState, holder_state, process_of
from rigging.lease.record import SKEW_ALLOWANCE, Lease, StoredLease

logger = logging.getLogger(__name__)

# HTTP dates have whole seconds, and an age is the difference of two.
_STORAGE_CLOCK_GRAIN = 2.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """Observations of one lease, from which `is_stale` decides.

    Args:
        holder: What this machine knows of the holder's process.
        unchanged_seconds: For how long the observer has seen it stand still, by its own monotonic clock.
        timestamp_age: How old its timestamp is by the observer's wall clock; below 0 when it is ahead.
        storage_age: How old the lock file is by the storage's own clock; None when that is not told.
    """

    holder: HolderState
    unchanged_seconds: float
    timestamp_age: float
    storage_age: float | None = None


def is_stale(evidence: Evidence, timeout: float, skew_allowance: float = SKEW_ALLOWANCE) -> bool:
    """Say whether a lease may be taken over.

    Args:
        evidence: What can be seen of it.
        timeout: Seconds without a renewal after which it may.
        skew_allowance: Seconds added to that when only the timestamp speaks, because wall clocks differ.
    """
    if evidence.holder is not HolderState.UNKNOWN:
        return evidence.holder is HolderState.GONE
    if evidence.unchanged_seconds >= timeout:
        return True
    if evidence.timestamp_age > timeout + skew_allowance:
        return True
    # Storage may run on a machine whose clock was set meanwhile: the timestamp has to agree.
    old_for_storage = evidence.storage_age is not None and evidence.storage_age > timeout + _STORAGE_CLOCK_GRAIN
    return old_for_storage and evidence.timestamp_age > timeout


@dataclass(frozen=True, slots=True)
class _Observation:
    """A version of the lock file and when this observer saw it first, by its own monotonic clock."""

    stored: StoredLease
    since: float


class LeaseObserver:
    """Sees whether a lease is live; remembers from one look to the next what it saw.

    Args:
        location: The lock file's path or URL, for messages.
        timeout: Seconds without a renewal after which it may be taken over.
        skew_allowance: Seconds added to that when only the timestamp speaks.
        must_renew: A holder that is to be seen on this machine, too, loses a lease that it does not renew.
        clock: For tests.
    """

    def __init__(
        self,
        location: str,
        timeout: float,
        skew_allowance: float = SKEW_ALLOWANCE,
        *,
        must_renew: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._location = location
        self._timeout = timeout
        self._skew = skew_allowance
        self._must_renew = must_renew
        self._clock = clock
        self._observed: _Observation | None = None
        self._told: tuple[str, HolderState] | None = None
        self._last_live: tuple[str, float] | None = None

    def live(self, stored: StoredLease | None) -> Lease | None:
        """Return the lease that a lock file holds; None when there is none, or it may be taken over."""
        if stored is None:
            self._observed = None
            return None
        lease = Lease.from_bytes(stored.content)
        if lease is None:
            logger.warning("lease %s: unreadable lock file %r counts as stale", self._location, stored.content[:80])
            return None
        seen = self._clock.monotonic()
        observed = self._observed
        if observed is None or observed.stored != stored:
            self._observed = observed = _Observation(stored, seen)
        holder = holder_state(lease.worker_id)
        if self._must_renew and holder is not HolderState.GONE:
            holder = HolderState.UNKNOWN
        evidence = Evidence(holder, seen - observed.since, self._clock.now() - lease.timestamp, stored.age_seconds)
        self._tell(lease.worker_id, evidence)
        if is_stale(evidence, self._timeout, self._skew):
            return None
        self._last_live = (lease.worker_id, seen)
        return lease

    def is_likely_back(self, seconds: float) -> bool:
        """Say whether the holder last seen runs on this machine and had the lease less than so many seconds ago.

        For a lease that is gone without a release: its holder may have removed its directory, and put it back soon.
        """
        if self._last_live is None or self._clock.monotonic() - self._last_live[1] >= seconds:
            return False
        return holder_state(self._last_live[0]) is HolderState.ALIVE

    def forget(self) -> None:
        """Forget what was seen: the lease is the observer's own now."""
        self._observed = None

    def _tell(self, worker_id: str, evidence: Evidence) -> None:
        """Say once what keeps others from the lease although it is not renewed, or what frees it."""
        holder = evidence.holder
        hangs = holder is HolderState.ALIVE and evidence.unchanged_seconds >= self._timeout
        if not (hangs or holder in (HolderState.GONE, HolderState.STOPPED)) or self._told == (worker_id, holder):
            return
        self._told = (worker_id, holder)
        if holder is HolderState.GONE:
            logger.warning("lease %s: the process of %s has ended", self._location, worker_id)
            return
        pid = process_of(worker_id)
        state = (
            f"is stopped (SIGSTOP or Ctrl-Z): let it go on (kill -CONT {pid})"
            if holder is HolderState.STOPPED
            else f"runs, but has not renewed it for {evidence.unchanged_seconds:.0f} s: see what it does"
        )
        ways = f"{state}, end it (kill -KILL {pid}), or take the lease from it: {take_command(self._location)}"
        logger.warning(
            "lease %s: waiting for its holder, process %s of this machine, which %s", self._location, pid, ways
        )


def take_command(location: str) -> str:
    """Return the command that takes a lease from its holder."""
    python = os.path.basename(sys.executable) or "python"
    return f"{python} -m rigging.lease take {location}"
