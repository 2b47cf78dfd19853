"""Decide whether a lease is stale, from its holder's process, renewals, the storage's clock, and its timestamp.

A process that exists on this machine keeps its lease, whatever any clock says. If it is stopped, a person may take the
lease (`python -m rigging.lease take`). An ended process has lost its lease. For processes elsewhere, only the lease
file is visible.
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
    """Observations of a lease, the input of `is_stale`.

    Args:
        holder: The state of the holder's process, as known to this machine.
        unchanged_seconds: Seconds without an observed change of the lock file, by the observer's monotonic clock.
        timestamp_age: The age of the lease's timestamp by the observer's wall clock; negative if it is in the future.
        storage_age: The age of the lock file by the storage's own clock; None if unknown.
    """

    holder: HolderState
    unchanged_seconds: float
    timestamp_age: float
    storage_age: float | None = None


def is_stale(evidence: Evidence, timeout: float, skew_allowance: float = SKEW_ALLOWANCE) -> bool:
    """Return whether a lease may be taken over.

    Args:
        evidence: The observations.
        timeout: Seconds without a renewal after which it may be taken over.
        skew_allowance: Seconds added to the timeout if only the timestamp is known, because wall clocks differ.
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
    """A version of the lock file, and when this observer first saw it, by its monotonic clock."""

    stored: StoredLease
    since: float


class LeaseObserver:
    """Decide whether a lease is live, remembering earlier observations.

    Args:
        location: The lock file's path or URL, for messages.
        timeout: Seconds without a renewal after which it may be taken over.
        skew_allowance: Seconds added to the timeout if only the timestamp is known.
        must_renew: A holder on this machine that does not renew its lease loses it, too.
        clock: The clock; replaced in tests.
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
        """Return the live lease in a lock file; None if there is none, or it may be taken over."""
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
        """Return whether the last known holder runs on this machine and held the lease less than `seconds` ago.

        Used when a lease file vanished without a release: its holder may have removed the directory, and may soon
        restore it.
        """
        if self._last_live is None or self._clock.monotonic() - self._last_live[1] >= seconds:
            return False
        return holder_state(self._last_live[0]) is HolderState.ALIVE

    def forget(self) -> None:
        """Forget all observations, because the observer now holds the lease."""
        self._observed = None

    def _tell(self, worker_id: str, evidence: Evidence) -> None:
        """Log once why a lease without renewals cannot be taken, or why it is free."""
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
            f"is stopped (SIGSTOP or Ctrl-Z): resume it (kill -CONT {pid})"
            if holder is HolderState.STOPPED
            else f"runs, but has not renewed it for {evidence.unchanged_seconds:.0f} s: check what it is doing"
        )
        ways = f"{state}, end it (kill -KILL {pid}), or take the lease from it: {take_command(self._location)}"
        logger.warning(
            "lease %s: waiting for its holder, process %s of this machine, which %s", self._location, pid, ways
        )


def take_command(location: str) -> str:
    """Return the command that takes a lease from its holder."""
    python = os.path.basename(sys.executable) or "python"
    return f"{python} -m rigging.lease take {location}"
