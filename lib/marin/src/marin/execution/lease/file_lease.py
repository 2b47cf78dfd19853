"""A step's lease and status under an exclusive lock: on local files, and best effort on other stores."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Final, Protocol

from marin.execution.lease.fencing import ExclusiveFence
from marin.execution.lease.status_words import STATUS_RUNNING, STATUS_SUCCESS, parse_status
from marin.execution.lease.step_lease import LeaseTerms, StepLease
from marin.output_files import STATUS_FILE
from rigging.distributed_lock import LeaseLostError
from rigging.filesystem import read_bytes_or_none, write_bytes_atomic
from rigging.filesystem.atomic import replace_file
from rigging.filesystem.location import name_path
from rigging.lease.base import LeaseStore
from rigging.lease.record import Lease, StoredLease, holder_of
from rigging.lease.staleness import LeaseObserver

logger = logging.getLogger(__name__)

_WITHIN: Final = contextlib.nullcontext()

# The older form has a line for each change, of which the last counts; no file comes near this size.
_MAX_STATUS_BYTES = 1 << 14


class ExclusiveStore(LeaseStore, Protocol):
    """A lock file whose users exclude each other during changes."""

    @property
    def is_new(self) -> bool:
        """True within `exclusive` if it created the directory, so that no file exists yet."""
        ...


class StatusCell(Protocol):
    """The storage of the status and of the other files of its output path."""

    def read(self) -> str | None:
        """Return the status, or None."""
        ...

    def write(self, status: str, previous: str | None) -> None:
        """Replace the status, whose current value must be `previous`."""
        ...

    def write_beside(self, name: str, content: bytes, *, keep_rights: bool = True) -> None:
        """Replace another file of the output path, atomically.

        Args:
            name: The file's name.
            content: The complete content.
            keep_rights: As in `replace_file`.
        """
        ...


class StatusOnDisk:
    """A status file at an absolute path on this machine."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._directory = path.removesuffix(STATUS_FILE)

    def read(self) -> str | None:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return parse_status(os.read(descriptor, _MAX_STATUS_BYTES))
        finally:
            os.close(descriptor)

    def write(self, status: str, previous: str | None) -> None:
        # Renaming a new file over an old one makes ext4 write the new one out first, which costs more than all the
        # rest of a step. Only these two cases matter: no file yet, where an empty one still means "no status"; and
        # RUNNING -> SUCCESS, two words of one length, put in place by one call. No part of them is a status.
        content = status.encode()
        if previous is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        elif (status, previous) == (STATUS_SUCCESS, STATUS_RUNNING):
            flags = os.O_WRONLY | os.O_CLOEXEC
        else:
            write_bytes_atomic(self._path, content)
            return
        try:
            descriptor = os.open(self._path, flags, 0o666)
        except (FileExistsError, FileNotFoundError):
            write_bytes_atomic(self._path, content)
            return
        try:
            in_place = previous is None or os.fstat(descriptor).st_size == len(content)
            if in_place:
                os.write(descriptor, content)
        except OSError as error:
            name_path(error, self._path)
            raise
        finally:
            os.close(descriptor)
        if not in_place:
            write_bytes_atomic(self._path, content)

    def write_beside(self, name: str, content: bytes, *, keep_rights: bool = True) -> None:
        replace_file(self._directory + name, content, keep_rights=keep_rights)


class StatusAtUrl:
    """A status file on any fsspec filesystem."""

    def __init__(self, url: str) -> None:
        self._url = url

    def read(self) -> str | None:
        return parse_status(read_bytes_or_none(self._url))

    def write(self, status: str, previous: str | None) -> None:
        del previous
        write_bytes_atomic(self._url, status.encode())

    def write_beside(self, name: str, content: bytes, *, keep_rights: bool = True) -> None:
        del keep_rights
        write_bytes_atomic(self._url.removesuffix(STATUS_FILE) + name, content)


class ExclusiveStepLease(StepLease):
    """A lease and a status that change together, under the exclusion of the lease's store.

    Args:
        output_path: The output path.
        label: The step's name in messages.
        terms: The timings of the lease.
        store: The lock file.
        status: The status file beside it.
    """

    def __init__(
        self, output_path: str, label: str, terms: LeaseTerms, store: ExclusiveStore, status: StatusCell
    ) -> None:
        super().__init__(output_path, label, terms)
        self._store = store
        self._status = status
        self._content = b""
        self._fence = ExclusiveFence(store, output_path, "")
        self._observer: LeaseObserver | None = None
        self._is_together = False
        # The lease as the present block of `together` has found or written it.
        self._found_together: StoredLease | None = None
        # This attempt has made the directory: no files there have rights that somebody gave them.
        self._has_made_directory = False

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        with self._turn, self._store.exclusive(create=True):
            self._is_together = True
            try:
                yield
            finally:
                self._is_together = False
                self._found_together = None

    def _exclusive(self) -> AbstractContextManager[object]:
        return _WITHIN if self._is_together else self._store.exclusive(create=True)

    def is_free(self) -> bool:
        return self._is_free(self._store.read())

    def _is_free(self, stored: StoredLease | None) -> bool:
        if stored is None:
            # A holder that gives its lease up leaves a status behind.
            is_removed = self._observer is not None and self._observer.is_likely_back(2 * self.terms.renew_seconds)
            return not is_removed or self._status.read() is not None
        if self._observer is None:
            # Remembers the lease between two looks: one that does not change any more is dead.
            self._observer = self.observer(self._store.location)
        return self._observer.live(stored) is None

    def _begin(self, force_run_failed: bool, is_fresh: bool) -> bool:
        del is_fresh  # reading costs next to nothing here
        with self._exclusive():
            is_new = self._store.is_new
            stored = self._store.read()
            if not self._is_free(stored):
                return False
            status = None if is_new else self._status.read()
            self._check_status(status, force_run_failed)
            worker_id = self.terms.new_id()
            claim = self._store.claim(Lease(worker_id, self.terms.clock.now()), stored, same_holder=False)
            if claim is None:
                return False
            self._worker_id, self._has_made_directory = worker_id, is_new
            self._fence = ExclusiveFence(self._store, self.output_path, worker_id)
            self._content = claim.stored.content
            if self._is_together:
                self._found_together = claim.stored
            if stored is not None:
                logger.warning("step %s: lease taken over from %s", self.label, holder_of(stored) or "nobody")
            self._status.write(STATUS_RUNNING, status)
        return True

    def _write(self, name: str, content: bytes) -> None:
        with self._exclusive():
            self._held_in_turn()
            self._status.write_beside(name, content, keep_rights=not self._has_made_directory)

    def _end(self, status: str) -> bool:
        with self._exclusive():
            try:
                stored = self._held_in_turn()
            except LeaseLostError as error:
                logger.warning("step %s: %s", self.label, error)
                return False
            try:
                self._status.write(status, STATUS_RUNNING)
            finally:
                deleted = self._store.delete(stored)
            return deleted

    def _leave(self, status: str) -> None:
        with self._store.exclusive(create=True), contextlib.suppress(LeaseLostError):
            self._held_in_turn()
            self._status.write(status, STATUS_RUNNING)

    def _renew(self) -> bool:
        # A function may be about to make its directory anew: then there is nothing to renew for the moment.
        with self._store.exclusive(create=False) as present:
            if not present:
                return True
            try:
                stored = self._held_in_turn()
            except LeaseLostError as error:
                logger.warning("step %s: %s", self.label, error)
                return False
            renewed = self._store.renew(Lease(self._worker_id, self.terms.clock.now()), stored)
            if renewed is None:
                return False
            self._content = renewed.content
            return True

    def _held_in_turn(self) -> StoredLease:
        """Return the lock file under its store's exclusion. Raise LeaseLostError if another holder has the lease."""
        if self._found_together is not None:
            return self._found_together
        stored = self._store.read()
        # The lock file nearly always has the content written last, which need not be parsed.
        if stored is not None and stored.content == self._content:
            if self._is_together:
                self._found_together = stored
            return stored
        # Removed with its directory, and written again: now, or by the job that does the step's work.
        stored = self._fence.held_in_turn()
        self._content = stored.content
        for name, content in self._written.items():
            self._status.write_beside(name, content)
        return stored
