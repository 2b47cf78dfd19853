"""Objects with conditional writes and deletes by version, and a wrapper that retries.

A store may perform a request and still answer with an error. The outcome of a write is found by reading the object, so
each write must have unique content.
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
    """The store did not answer, or answered with a transient error. It may or may not have performed the request."""


class ConditionalObjects(Protocol):
    """Objects by key. Each version has its own mark (generation, ETag).

    Every method raises StoreTrouble if the outcome is unknown, and other MarinErrors for permanent failures (no such
    bucket, not allowed). Each makes one request, with a bounded time in seconds.
    """

    @property
    def marks_are_unique(self) -> bool:
        """True if no two versions of an object ever share a mark; False if equal contents have equal marks."""
        ...

    def get(self, key: str) -> StoredLease | None:
        """Return the object, or None."""
        ...

    def put(self, key: str, content: bytes, expected: str | None) -> str | None:
        """Write the object if its version is `expected` (None: if it does not exist). Return None if the version
        differs.

        Args:
            key: Its key.
            content: The whole content.
            expected: The version to replace.

        Returns:
            The new version's mark.
        """
        ...

    def delete(self, key: str, expected: str) -> bool:
        """Delete the object if its version is `expected`. Return False if the version differs or the object does not
        exist.
        """
        ...


class PatientObjects:
    """Conditional reads, writes and deletes, retried while the store does not answer.

    Every method raises Unavailable if the store does not answer for `patience_seconds`.

    Args:
        objects: The bucket.
        patience_seconds: How long to retry one operation.
    """

    def __init__(self, objects: ConditionalObjects, patience_seconds: float = RETRY_SECONDS) -> None:
        self._objects = objects
        self._patience = patience_seconds

    @property
    def marks_are_unique(self) -> bool:
        """True if no two versions of an object ever share a mark."""
        return self._objects.marks_are_unique

    def get(self, key: str) -> StoredLease | None:
        """Return the object, or None."""
        return self._patiently(lambda _: self._objects.get(key), f"read {key}")

    def put(self, key: str, content: bytes, expected: str | None) -> str | None:
        """Write an object if its version is `expected` (None: if it does not exist). Return its new version; None if
        refused.

        Args:
            key: Its key.
            content: The whole content.
            expected: The version to replace.
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
        """Delete an object if its version is `expected`. Return False if the version differed or the object did not
        exist.
        """
        # After an unclear answer, one that is not this version any more was deleted by that attempt.
        return self._patiently(lambda tried: self._objects.delete(key, expected) or tried, f"delete {key}")

    def _patiently(self, operation: Callable[[bool], T], what: str) -> T:
        """Call `operation` until the store answers. Its argument is whether there was an earlier attempt."""
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
