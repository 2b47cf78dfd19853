"""Write a step's status, info and result files under its lease. An attempt without the lease writes nothing.

On local files the lease is checked and the file written under the lease's kernel lock. On object stores, the write
requires that the file has not changed since before the lease check. If another attempt has taken over the lease and
written its own file, the write fails. If it has not written yet, it will overwrite this file.

The lease is in the output directory. If a function removes the directory (to start with an empty one), the lease stays
valid until another attempt starts there. Until then the directory has no lock, no status and no fencing number.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Protocol

from marin.execution.lease.status_words import STATUS_RUNNING, status_path
from marin.output_files import LOCK_SUFFIX, STATUS_FILE
from rigging.distributed_lock import Lease, LeaseLostError
from rigging.errors import Unavailable
from rigging.filesystem import local_path, read_bytes_or_none, url_to_fs, write_bytes_atomic
from rigging.filesystem.location import path_in
from rigging.lease.base import LeaseStore
from rigging.lease.buckets import bucket_objects
from rigging.lease.objects import RETRY_SECONDS, PatientObjects
from rigging.lease.record import StoredLease, holder_of

logger = logging.getLogger(__name__)

# Tries of a write while other attempts write the same file; each of them writes once.
_WRITE_ATTEMPTS = 8


class Fence(Protocol):
    """Write the files of one attempt's output path while its lease is held."""

    def ensure_held(self) -> None:
        """Raise LeaseLostError unless the lease is held. A lease that was removed with its directory counts as held."""
        ...

    def write(self, name: str, content: bytes, *, is_new: bool = False, is_likely_new: bool = False) -> None:
        """Write a file of the output path, atomically.

        Args:
            name: The file's name.
            content: The file's content.
            is_new: Whether the file is probably new and the lease was held a moment ago, which saves requests.
            is_likely_new: Whether the file is probably new, which saves a request. The lease is still checked.

        Raises:
            LeaseLostError: The lease is no longer held. Nothing is written.
        """
        ...

    def remove(self, name: str) -> None:
        """Remove a file of the output path, if it exists. Raise LeaseLostError like `write`."""
        ...


@dataclass(frozen=True, slots=True)
class LeaseToken:
    """The proof that an attempt holds the lease. It can be sent to the step's job.

    Attributes:
        output_path: The output path.
        worker_id: The attempt's id in the lock file.
        patience_seconds: How long to retry requests to a store that does not answer.
    """

    output_path: str
    worker_id: str
    patience_seconds: float = RETRY_SECONDS

    def write(self, name: str, content: bytes, *, is_new: bool = False, is_likely_new: bool = False) -> None:
        """Write a file of the output path, like `Fence.write`."""
        self._fence().write(name, content, is_new=is_new, is_likely_new=is_likely_new)

    def remove(self, name: str) -> None:
        """Remove a file of the output path, like `Fence.remove`."""
        self._fence().remove(name)

    def _fence(self) -> Fence:
        lock = status_path(self.output_path) + LOCK_SUFFIX
        local = local_path(lock)
        if local is not None:
            from rigging.lease.local import LocalLeaseStore

            return ExclusiveFence(LocalLeaseStore(local), self.output_path, self.worker_id)
        found = bucket_objects(lock)
        if found is not None:
            objects, key = PatientObjects(found[0], self.patience_seconds), found[1]
            return ObjectFence(objects, self.output_path, key.removesuffix(LOCK_SUFFIX), self.worker_id)
        from rigging.lease.best_effort import BestEffortLeaseStore

        return ExclusiveFence(BestEffortLeaseStore(lock), self.output_path, self.worker_id)


@dataclass(frozen=True, slots=True)
class FreshFiles:
    """Write files of an output without earlier attempts. Files are assumed to be new, which saves requests.

    Attributes:
        token: The lease.
    """

    token: LeaseToken

    def write(self, name: str, content: bytes) -> None:
        """Write a file. Raise LeaseLostError if the lease is lost."""
        self.token.write(name, content, is_likely_new=True)

    def remove(self, name: str) -> None:
        """Remove a file of the output path, like `Fence.remove`."""
        self.token.remove(name)


class ExclusiveFence:
    """A `Fence` under an exclusive lock: on local files, and best effort on other stores.

    Args:
        store: The lock file.
        output_path: The output path.
        worker_id: The attempt's id in the lock file.
    """

    def __init__(self, store: LeaseStore, output_path: str, worker_id: str) -> None:
        self._store = store
        self._output_path = output_path
        self._worker_id = worker_id

    def ensure_held(self) -> None:
        with self._store.exclusive(create=True):
            self.held_in_turn()

    def held_in_turn(self) -> StoredLease:
        """Context manager: yield the lock file under its store's exclusion. Raise LeaseLostError if the lease is not
        held.
        """
        stored = self._store.read()
        if stored is not None and holder_of(stored) == self._worker_id:
            return stored
        status = status_path(self._output_path)
        if stored is not None or self._store.read_fence() != 0 or read_bytes_or_none(status) is not None:
            raise lost(self._output_path, self._worker_id, stored)
        warn_of_removal(self._output_path)
        claim = self._store.claim(Lease(self._worker_id, time.time()), None, same_holder=True)
        if claim is None:
            raise lost(self._output_path, self._worker_id, self._store.read())
        write_bytes_atomic(status, STATUS_RUNNING.encode())
        return claim.stored

    def write(self, name: str, content: bytes, *, is_new: bool = False, is_likely_new: bool = False) -> None:
        del is_new, is_likely_new  # reading costs next to nothing here
        with self._store.exclusive(create=True):
            self.held_in_turn()
            write_bytes_atomic(path_in(self._output_path, name), content)

    def remove(self, name: str) -> None:
        with self._store.exclusive(create=True):
            self.held_in_turn()
            fs, path = url_to_fs(path_in(self._output_path, name))
            if fs.exists(path):
                fs.rm_file(path)


class ObjectFence:
    """A `Fence` on a store with conditional writes.

    Args:
        objects: The bucket.
        output_path: The output path.
        status_key: The status object's key.
        worker_id: The attempt's id in the lock object.
    """

    def __init__(self, objects: PatientObjects, output_path: str, status_key: str, worker_id: str) -> None:
        self._objects = objects
        self._output_path = output_path
        self._status_key = status_key
        self._lock_key = status_key + LOCK_SUFFIX
        self._worker_id = worker_id

    def ensure_held(self) -> None:
        lock = self._objects.get(self._lock_key)
        if lock is not None and holder_of(lock) == self._worker_id:
            return
        if lock is not None or self._objects.get(self._status_key) is not None:
            raise lost(self._output_path, self._worker_id, lock)
        warn_of_removal(self._output_path)
        content = Lease(self._worker_id, time.time()).to_bytes()
        version = self._objects.put(self._lock_key, content, None)
        if version is None:
            raise lost(self._output_path, self._worker_id, self._objects.get(self._lock_key))
        if self._objects.put(self._status_key, STATUS_RUNNING.encode(), None) is None:
            # Another attempt has begun and ended in between.
            self._objects.delete(self._lock_key, version)
            raise lost(self._output_path, self._worker_id, None)

    def write(self, name: str, content: bytes, *, is_new: bool = False, is_likely_new: bool = False) -> None:
        key = self._key(name)
        if is_likely_new and not is_new:
            self.ensure_held()
        # That there is no such file after the look at the lease says as much as that there was none before it.
        if (is_new or is_likely_new) and self._objects.put(key, content, None) is not None:
            return
        for _ in range(_WRITE_ATTEMPTS):
            found = self._objects.get(key)
            # After the read: a later write by another attempt makes this one fail.
            self.ensure_held()
            if found is not None and found.content == content:
                return
            if self._objects.put(key, content, None if found is None else found.generation) is not None:
                return
        raise Unavailable(f"{path_in(self._output_path, name)} keeps being changed by others")

    def remove(self, name: str) -> None:
        key = self._key(name)
        found = self._objects.get(key)
        if found is not None:
            self.ensure_held()
            self._objects.delete(key, found.generation)

    def _key(self, name: str) -> str:
        return self._status_key.removesuffix(STATUS_FILE) + name


def lost(output_path: str, worker_id: str, found: StoredLease | None) -> LeaseLostError:
    """Return the error for a lost lease.

    Args:
        output_path: The output path.
        worker_id: The id that held the lease.
        found: The present lock file, or None.
    """
    holder = "nobody has it now" if found is None else f"now held by {holder_of(found) or 'an unreadable lock file'}"
    return LeaseLostError(f"the lease on {output_path} is lost to {worker_id}: {holder}")


def warn_of_removal(output_path: str) -> None:
    """Log that a lease stays valid although it was removed with its directory."""
    logger.warning(
        "the output directory %s was removed while its step was running (by its own function?): its lease stays valid; "
        "earlier files are gone",
        output_path,
    )
