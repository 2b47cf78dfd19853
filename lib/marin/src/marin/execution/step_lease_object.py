"""A step's lease and status on object stores that write on condition that an object is unchanged."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable
from typing import TypeVar

from marin.execution.executor_step_status import (
    LOCK_SUFFIX,
    STATUS_RUNNING,
    StepAlreadyDone,
    parse_status,
    status_path,
)
from marin.execution.leasing import LeaseTerms, StepLease
from rigging.errors import MarinError, Unavailable
from rigging.lease.object_store import PATIENCE_SECONDS, ConditionalObjects, StoreTrouble
from rigging.lease.record import Lease, StoredLease, holder_of
from rigging.timing import ExponentialBackoff, retry_with_backoff

logger = logging.getLogger(__name__)

T = TypeVar("T")

# How often RUNNING is tried again when others write statuses at the same time; each of them is done after one write.
_STATUS_ATTEMPTS = 8


@functools.lru_cache(maxsize=64)
def bucket_objects(scheme: str, bucket: str) -> ConditionalObjects:
    """The objects of a bucket, for `gs`, `gcs`, `s3` or `s3a`."""
    if scheme in ("gs", "gcs"):
        from rigging.lease.gcs import GcsObjects

        return GcsObjects(bucket)
    from rigging.lease.s3 import S3Objects

    return S3Objects(bucket)


class ObjectStepLease(StepLease):
    """A lock object and a status object, each written on condition of the version this attempt knows.

    An attempt that meets nobody takes four requests: lock, RUNNING, last word, unlock; one more unless it is known
    that there was no status.

    Where a version's mark is made from the content (S3's ETag), one attempt's RUNNING cannot be told from another's.
    There a lease that has not been renewed for long is renewed before the last word is written, and the last word is
    taken back if the lock turns out to have gone to another in between.

    Args:
        output_path: The output path.
        label: What to call the step in messages.
        terms: How the lease is kept.
        objects: The bucket.
        status_key: The status object's key.
    """

    def __init__(
        self, output_path: str, label: str, terms: LeaseTerms, objects: ConditionalObjects, status_key: str
    ) -> None:
        super().__init__(output_path, label, terms)
        self._objects = objects
        self._status_key = status_key
        self._lock_key = status_key + LOCK_SUFFIX
        self._worker_id = ""
        self._lock_version = ""
        self._status_version = ""
        self._observer = self.observer(status_path(output_path) + LOCK_SUFFIX)

    def is_free(self) -> bool:
        return self._observer.live(self._get(self._lock_key)) is None

    def _begin(self, force_run_failed: bool, is_fresh: bool) -> bool:
        self._worker_id = self.terms.new_id()
        # Most of the time nobody holds it; asking first would cost a request.
        version = self._put(self._lock_key, self._lease(), None)
        if version is None:
            stored = self._get(self._lock_key)
            if self._observer.live(stored) is not None:
                return False
            version = self._put(self._lock_key, self._lease(), stored)
            if version is None:
                return False
            if stored is not None:
                previous = holder_of(stored) or "nobody"
                logger.warning("step %s: lease taken over from %s", self.label, previous)
        self._lock_version = version
        try:
            return self._write_running(force_run_failed, is_fresh)
        except BaseException as error:
            with contextlib.suppress(MarinError):
                self._delete_lock()
            if not isinstance(error, StepAlreadyDone):
                logger.debug("step %s: lease given up: %s", self.label, error)
            raise

    def _write_running(self, force_run_failed: bool, is_fresh: bool) -> bool:
        """Write RUNNING over the status that was there; what a status says is looked at first."""
        for attempt in range(_STATUS_ATTEMPTS):
            found = None if is_fresh and attempt == 0 else self._get(self._status_key)
            self._check_status(parse_status(found.content if found else None), force_run_failed)
            version = self._put(self._status_key, STATUS_RUNNING.encode(), found)
            if version is not None:
                self._status_version = version
                return True
        raise Unavailable(f"step {self.label}: the status of {self.output_path} is changed by others all the time")

    def _end(self, status: str) -> bool:
        content = status.encode()
        marks_are_unique = self._objects.marks_are_unique
        if not marks_are_unique and self.seconds_left() < self.terms.timeout_seconds / 2 and not self._renew():
            return False
        written = self._put(self._status_key, content, StoredLease(b"", self._status_version))
        still_locked = self._delete_lock()
        if written is None:
            return still_locked and self._says(content)
        if still_locked or marks_are_unique:
            # Written means that nobody else had begun: whoever has the lease by now finds this status.
            return True
        if self._get(self._lock_key) is None:
            return True  # removed, but by nobody who is at work on this output
        self._put(self._status_key, STATUS_RUNNING.encode(), StoredLease(b"", written))
        return False

    def _says(self, content: bytes) -> bool:
        # A refusal by the store's own repetition of a write that was carried out.
        found = self._get(self._status_key)
        return found is not None and found.content == content

    def _renew(self) -> bool:
        version = self._put(self._lock_key, self._lease(), StoredLease(b"", self._lock_version))
        if version is not None:
            self._lock_version = version
        return version is not None

    def _delete_lock(self) -> bool:
        tried: list[StoreTrouble] = []

        def once() -> bool:
            try:
                # After an unclear answer, a lock that is not this version any more was deleted by that attempt.
                return self._objects.delete(self._lock_key, self._lock_version) or bool(tried)
            except StoreTrouble as trouble:
                tried.append(trouble)
                raise

        return _patiently(once, f"unlock {self.output_path}")

    def _lease(self) -> bytes:
        return Lease(self._worker_id, self.terms.clock.now()).to_bytes()

    def _get(self, key: str) -> StoredLease | None:
        return _patiently(lambda: self._objects.get(key), f"read {key}")

    def _put(self, key: str, content: bytes, replacing: StoredLease | None) -> str | None:
        """Write an object if its version is the one of `replacing`; the new version, None when it was another."""
        unclear = False

        def once() -> str | None:
            nonlocal unclear
            try:
                version = self._objects.put(key, content, replacing.generation if replacing else None)
            except StoreTrouble:
                unclear = True
                raise
            if version is None and unclear:
                # The attempt before may have been carried out although its answer was an error.
                found = self._objects.get(key)
                if found is not None and found.content == content:
                    return found.generation
            return version

        return _patiently(once, f"write {key}")


def _patiently(operation: Callable[[], T], what: str) -> T:
    return retry_with_backoff(
        operation,
        retryable=lambda error: isinstance(error, StoreTrouble),
        max_attempts=1000,
        max_elapsed=PATIENCE_SECONDS,
        backoff=ExponentialBackoff(initial=0.02, maximum=2.0, factor=2.0, jitter=0.5),
        operation=what,
    )
