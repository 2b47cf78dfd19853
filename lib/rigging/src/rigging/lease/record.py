"""The content of a lock file, and the lifetime of leases."""

import json
import time
from dataclasses import dataclass, field

#: Seconds between renewals of a held lease.
HEARTBEAT_INTERVAL = 30.0
#: Seconds without a renewal after which a lease may be taken over.
HEARTBEAT_TIMEOUT = 90.0
#: Seconds by which two machines' wall clocks may differ before one takes a live lease for a dead one.
SKEW_ALLOWANCE = 3600.0

_json_text = json.encoder.encode_basestring_ascii


@dataclass(frozen=True, slots=True)
class Lease:
    """The content of a lock file.

    Args:
        worker_id: The holder.
        timestamp: The time of the last renewal, in seconds since the epoch by the holder's clock.
    """

    worker_id: str
    timestamp: float

    def is_stale(self, timeout: float = HEARTBEAT_TIMEOUT, now: float | None = None) -> bool:
        """Return whether the last renewal is more than `timeout` seconds before `now` (default: this machine's
        time).
        """
        return (time.time() if now is None else now) - self.timestamp > timeout

    def to_bytes(self) -> bytes:
        """Return the lock file's content."""
        # As json.dumps writes it, in a tenth of the time: a step's lease is two of these.
        return f'{{"worker_id": {_json_text(self.worker_id)}, "timestamp": {float(self.timestamp)!r}}}'.encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> "Lease | None":
        """Parse a lock file's content; return None if it is empty or broken. Unknown keys are ignored."""
        try:
            parsed = json.loads(content)
            return cls(worker_id=str(parsed["worker_id"]), timestamp=float(parsed["timestamp"]))
        except (ValueError, TypeError, KeyError, RecursionError):
            return None


@dataclass(frozen=True, slots=True)
class StoredLease:
    """A lock file as it was read.

    Args:
        content: Its bytes.
        generation: The store's mark of this version (mtime, generation, ETag).
        age_seconds: The age of this version by the storage's own clock; None if the storage has no clock or does not
            report it.
    """

    content: bytes
    generation: str
    age_seconds: float | None = field(default=None, compare=False)


def holder_of(stored: StoredLease | None) -> str | None:
    """Return the holder in a lock file; None if it is missing or unreadable."""
    lease = None if stored is None else Lease.from_bytes(stored.content)
    return None if lease is None else lease.worker_id


def age_by(date: str | None, last_modified: str | None) -> float | None:
    """Return an object's age from two HTTP dates of one server; None if one is missing or unreadable."""
    if date is None or last_modified is None:
        return None
    from email.utils import parsedate_to_datetime  # takes as long to import as all leases

    try:
        return (parsedate_to_datetime(date) - parsedate_to_datetime(last_modified)).total_seconds()
    except (ValueError, TypeError):
        return None
