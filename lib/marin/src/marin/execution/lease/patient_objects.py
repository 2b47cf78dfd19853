"""Objects of a bucket, with patience: what the store does not answer, or answers unclearly, is tried for a while."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from rigging.lease.object_store import RETRY_SECONDS, ConditionalObjects, StoreTrouble
from rigging.lease.record import StoredLease
from rigging.timing import ExponentialBackoff, retry_with_backoff

T = TypeVar("T")


@functools.lru_cache(maxsize=64)
def bucket_objects(scheme: str, bucket: str) -> ConditionalObjects:
    """The objects of a bucket, for `gs`, `gcs`, `s3` or `s3a`."""
    if scheme in ("gs", "gcs"):
        from rigging.lease.gcs import GcsObjects

        return GcsObjects(bucket)
    from rigging.lease.s3 import S3Objects

    return S3Objects(bucket)


class PatientObjects:
    """Reads, writes and deletes on condition of versions.

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
        """Whether no two versions of an object ever have one mark."""
        return self._objects.marks_are_unique

    def get(self, key: str) -> StoredLease | None:
        """The object; None when there is none."""
        return self._patiently(lambda: self._objects.get(key), f"read {key}")

    def put(self, key: str, content: bytes, expected: str | None) -> str | None:
        """Write an object if its version is `expected` (None: if there is none); its new version, None if refused."""
        unclear = False

        def once() -> str | None:
            nonlocal unclear
            try:
                version = self._objects.put(key, content, expected)
            except StoreTrouble:
                unclear = True
                raise
            if version is None and unclear:
                # The attempt before may have been carried out although its answer was an error.
                found = self._objects.get(key)
                if found is not None and found.content == content:
                    return found.generation
            return version

        return self._patiently(once, f"write {key}")

    def delete(self, key: str, expected: str) -> bool:
        """Delete an object if its version is `expected`; False when it was not, or there was none."""
        tried: list[StoreTrouble] = []

        def once() -> bool:
            try:
                # After an unclear answer, one that is not this version any more was deleted by that attempt.
                return self._objects.delete(key, expected) or bool(tried)
            except StoreTrouble as trouble:
                tried.append(trouble)
                raise

        return self._patiently(once, f"delete {key}")

    def _patiently(self, operation: Callable[[], T], what: str) -> T:
        return retry_with_backoff(
            operation,
            retryable=lambda error: isinstance(error, StoreTrouble),
            max_attempts=1000,
            max_elapsed=self._patience,
            backoff=ExponentialBackoff(initial=0.02, maximum=2.0, factor=2.0, jitter=0.5),
            operation=what,
        )
