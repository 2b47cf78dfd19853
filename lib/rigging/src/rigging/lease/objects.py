"""Objects that are written and deleted on condition of their version, and a patient way to use them.

A store may carry a request out and answer with an error all the same. What became of a write is found out by reading
the object, so everyone who writes gives each write content of its own.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from rigging.errors import Unavailable
from rigging.lease.record import StoredLease
from rigging.timing import ExponentialBackoff, retry_with_backoff

T = TypeVar("T")

#: How long one read, write or delete is tried, seconds; well below the time after which a lease may be taken over.
RETRY_SECONDS = 20.0
#: Attempts that are made however long they take: a machine that stood still has not found out anything.
_LEAST_ATTEMPTS = 4


class StoreTrouble(Unavailable):
    """The store did not answer, or with an error that may pass: the request may or may not have been carried out."""


class ConditionalObjects(Protocol):
    """Objects by key, each version with a mark of its own (generation, ETag).

    Every method raises StoreTrouble when the outcome is not known, and other MarinErrors for what will not pass
    (no such bucket, not allowed). Each takes a bounded time, seconds, and makes its request once.
    """

    @property
    def marks_are_unique(self) -> bool:
        """True if no two versions of an object ever have one mark; False where equal contents have equal marks."""
        ...

    def get(self, key: str) -> StoredLease | None:
        """Return the object, None when there is none."""
        ...

    def put(self, key: str, content: bytes, expected: str | None) -> str | None:
        """Write the object if its version is `expected` (None: if there is none); None when it is not.

        Args:
            key: Its name.
            content: The whole content.
            expected: The version that it replaces.

        Returns:
            The new version's mark.
        """
        ...

    def delete(self, key: str, expected: str) -> bool:
        """Delete the object if its version is `expected`; False when it is not, or there is none."""
        ...


class PatientObjects:
    """Reads, writes and deletes on condition of versions; what the store does not answer is tried for a while.

    Every method raises Unavailable when the store stays away for `patience_seconds`.

    Args:
        objects: The bucket.
        patience_seconds: How long one operation is tried.
    """

    def __init__(self, objects: ConditionalObjects, patience_seconds: float = RETRY_SECONDS) -> None:
        self._objects = objects
        self._patience = patience_seconds

    @property
    def marks_are_unique(self) -> bool:
        """True if no two versions of an object ever have one mark."""
        return self._objects.marks_are_unique

    def get(self, key: str) -> StoredLease | None:
        """Return the object; None when there is none."""
        return self._patiently(lambda _: self._objects.get(key), f"read {key}")

    def put(self, key: str, content: bytes, expected: str | None) -> str | None:
        """Write an object if its version is `expected` (None: if there is none); its new version, None if refused.

        Args:
            key: Its name.
            content: The whole content.
            expected: The version that it replaces.
        """

        def once(tried: bool) -> str | None:
            version = self._objects.put(key, content, expected)
            if version is None and tried:
                # The attempt before may have been carried out although its answer was an error.
                found = self._objects.get(key)
                if found is not None and found.content == content:
                    return found.generation
            return version

        return self._patiently(once, f"write {key}")

    def delete(self, key: str, expected: str) -> bool:
        """Delete an object if its version is `expected`; False when it was not, or there was none."""
        # After an unclear answer, one that is not this version any more was deleted by that attempt.
        return self._patiently(lambda tried: self._objects.delete(key, expected) or tried, f"delete {key}")

    def _patiently(self, operation: Callable[[bool], T], what: str) -> T:
        """Call `operation` until the store answers; it is told whether an attempt was made before."""
        troubles: list[Exception] = []
        try:
            return retry_with_backoff(
                lambda: operation(bool(troubles)),
                retryable=StoreTrouble,
                max_attempts=1000,
                min_attempts=_LEAST_ATTEMPTS,
                max_elapsed=self._patience,
                backoff=ExponentialBackoff(initial=0.02, maximum=2.0, factor=2.0, jitter=0.5),
                on_retry=lambda error, _: troubles.append(error),
                operation=what,
            )
        except StoreTrouble as trouble:
            raise Unavailable(f"cannot {what}, tried for {self._patience:g} s: {trouble}") from trouble
