"""A step's lease and status on object stores with conditional writes."""

from __future__ import annotations

import logging

from marin.execution.lease.fencing import ObjectFence
from marin.execution.lease.status_file import StepAlreadyDone
from marin.execution.lease.status_words import STATUS_RUNNING, parse_status, status_path
from marin.execution.lease.step_lease import LeaseTerms, StepLease
from marin.output_files import LOCK_SUFFIX
from rigging.distributed_lock import LeaseLostError
from rigging.errors import MarinError, Unavailable
from rigging.lease.identity import give_up
from rigging.lease.objects import PatientObjects
from rigging.lease.record import Lease, holder_of

logger = logging.getLogger(__name__)

# Tries to write RUNNING while other attempts write statuses; each of them writes once.
_STATUS_ATTEMPTS = 8


class ObjectStepLease(StepLease):
    """A lock object and a status object, each written only if its version is the one known to this attempt.

    An attempt without competition takes four requests: lock, RUNNING, final status, unlock. An unknown earlier status
    takes one more.

    If an object's version is computed from its content (S3's ETag), the RUNNING statuses of two attempts have the same
    version. There, a lease with a late renewal is renewed before the final status is written. The status is withdrawn
    if another attempt got the lock in between.

    Args:
        output_path: The output path.
        label: The step's name in messages.
        terms: The timings of the lease.
        objects: The bucket.
        status_key: The status object's key.
    """

    def __init__(
        self, output_path: str, label: str, terms: LeaseTerms, objects: PatientObjects, status_key: str
    ) -> None:
        super().__init__(output_path, label, terms)
        self._objects = objects
        self._status_key = status_key
        self._lock_key = status_key + LOCK_SUFFIX
        self._fence = ObjectFence(objects, output_path, status_key, "")
        self._lock_version = ""
        self._status_version = ""
        # No earlier attempt has left files here that are to be written over.
        self._is_first = False
        self._observer = self.observer(status_path(output_path) + LOCK_SUFFIX)

    def is_free(self) -> bool:
        stored = self._objects.get(self._lock_key)
        if stored is None and self._observer.is_likely_back(2 * self.terms.renew_seconds):
            # A holder that gives its lease up leaves a status behind.
            return self._objects.get(self._status_key) is not None
        return self._observer.live(stored) is None

    def _begin(self, force_run_failed: bool, is_fresh: bool) -> bool:
        self._worker_id = self.terms.new_id()
        self._fence = ObjectFence(self._objects, self.output_path, self._status_key, self._worker_id)
        # Most leases are free; reading first would cost a request.
        version = self._objects.put(self._lock_key, self._lease(), None)
        if version is None:
            stored = self._objects.get(self._lock_key)
            if self._observer.live(stored) is not None:
                return False
            version = self._objects.put(self._lock_key, self._lease(), stored.generation if stored else None)
            if version is None:
                return False
            if stored is not None:
                previous = holder_of(stored) or "nobody"
                logger.warning("step %s: lease taken over from %s", self.label, previous)
        self._lock_version = version
        try:
            return self._write_running(force_run_failed, is_fresh)
        except BaseException as error:
            try:
                self._delete_lock()
            except MarinError:
                give_up(self._worker_id)
            if not isinstance(error, StepAlreadyDone):
                logger.debug("step %s: lease given up: %s", self.label, error)
            raise

    def _write_running(self, force_run_failed: bool, is_fresh: bool) -> bool:
        """Replace the status by RUNNING, after checking it."""
        for attempt in range(_STATUS_ATTEMPTS):
            found = None if is_fresh and attempt == 0 else self._objects.get(self._status_key)
            self._check_status(parse_status(found.content if found else None), force_run_failed)
            version = self._objects.put(self._status_key, STATUS_RUNNING.encode(), found.generation if found else None)
            if version is not None:
                self._status_version = version
                self._is_first = found is None
                return True
        raise Unavailable(f"step {self.label}: the status of {self.output_path} keeps being changed by others")

    def _write(self, name: str, content: bytes) -> None:
        renewed_lately = self.seconds_left() > self.terms.timeout_seconds / 2
        self._fence.write(name, content, is_new=self._is_first and renewed_lately)

    def _end(self, status: str) -> bool:
        content = status.encode()
        marks_are_unique = self._objects.marks_are_unique
        if not marks_are_unique and self.seconds_left() < self.terms.timeout_seconds / 2 and not self._renew():
            return False
        written = self._objects.put(self._status_key, content, self._status_version)
        if written is None and not self._says(content):
            if not self._recover():
                self._delete_lock()
                return False
            written = self._objects.put(self._status_key, content, self._status_version)
        still_locked = self._delete_lock()
        if written is None:
            return still_locked and self._says(content)
        if still_locked or marks_are_unique:
            # The write succeeded, so no other attempt had begun; a later holder of the lease finds this status.
            return True
        if self._objects.get(self._lock_key) is None:
            return True  # removed, but not by another attempt at this output
        self._objects.put(self._status_key, STATUS_RUNNING.encode(), written)
        return False

    def _leave(self, status: str) -> None:
        self._objects.put(self._status_key, status.encode(), self._status_version)

    def _says(self, content: bytes) -> bool:
        # The store repeated a write that had succeeded, and refused its own repetition.
        found = self._objects.get(self._status_key)
        return found is not None and found.content == content

    def _renew(self) -> bool:
        version = self._objects.put(self._lock_key, self._lease(), self._lock_version)
        if version is None and self._recover():
            version = self._objects.put(self._lock_key, self._lease(), self._lock_version)
        if version is not None:
            self._lock_version = version
        return version is not None

    def _recover(self) -> bool:
        """Return whether lock and status still belong to this attempt, although their versions changed because the
        output was removed.
        """
        try:
            self._fence.ensure_held()
        except LeaseLostError as error:
            logger.warning("step %s: %s", self.label, error)
            return False
        lock, status = self._objects.get(self._lock_key), self._objects.get(self._status_key)
        if lock is None or holder_of(lock) != self._worker_id:
            return False
        if status is None or status.content != STATUS_RUNNING.encode():
            return False
        self._lock_version, self._status_version = lock.generation, status.generation
        for name, content in self._written.items():
            self._fence.write(name, content)
        return True

    def _delete_lock(self) -> bool:
        return self._objects.delete(self._lock_key, self._lock_version)

    def _lease(self) -> bytes:
        return Lease(self._worker_id, self.terms.clock.now()).to_bytes()
