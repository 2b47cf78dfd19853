"""Leases on local files. They are exclusive among the processes of a machine.

Changes are made under a kernel lock (flock) on a sidecar file, `{lock}.fence`, which also holds the fencing number and
is never deleted. The lock file itself is replaced by rename, so that readers without the kernel lock never see a part.
"""

import contextlib
import os
import time
from contextlib import AbstractContextManager

from rigging.errors import Unavailable
from rigging.filesystem.atomic import TEMPORARY_PREFIX
from rigging.filesystem.location import name_path
from rigging.lease.base import Claim, claim_in_turn, fence_from_bytes
from rigging.lease.record import Lease, StoredLease
from rigging.process.file_lock import try_lock, unlock_and_close

FENCE_SUFFIX = ".fence"
_FENCE_DIGITS = 20
_BUSY_POLL_SECONDS = 0.0005


class _Exclusion(AbstractContextManager[bool]):
    """The context manager of `LocalLeaseStore.exclusive`, a class because a generator is slower."""

    __slots__ = ("_create", "_store")

    def __init__(self, store: "LocalLeaseStore", create: bool) -> None:
        self._store = store
        self._create = create

    def __enter__(self) -> bool:
        return self._store.enter(self._create)

    def __exit__(self, *exc: object) -> None:
        self._store.leave()


class LocalLeaseStore:
    """A lock file at an absolute path on this machine.

    Args:
        path: The lock file.
        busy_seconds: Timeout for the kernel lock, in seconds. A running holder releases it within microseconds.
        is_likely_new: The directory probably does not exist yet: skip the check.
    """

    def __init__(self, path: str, busy_seconds: float = 10.0, *, is_likely_new: bool = False) -> None:
        self._path = path
        self._busy_seconds = busy_seconds
        self._sidecar = path + FENCE_SUFFIX
        # One name is enough, as it is only used under the kernel lock; what a crash leaves is overwritten.
        self._directory, _, name = path.rpartition("/")
        self._temporary = f"{self._directory}/{TEMPORARY_PREFIX}{name}"
        # Only valid inside `exclusive`, and per instance: the descriptor of the locked sidecar.
        self._descriptor = -1
        # What was read under the kernel lock stays true until it is given up, or written over here.
        self._read_in_turn: StoredLease | None = None
        self._is_new = False
        self._is_likely_new = is_likely_new

    @property
    def location(self) -> str:
        return self._path

    @property
    def is_new(self) -> bool:
        """True within `exclusive` if it created the directory, so that no lock file can exist."""
        return self._is_new

    def exclusive(self, *, create: bool) -> AbstractContextManager[bool]:
        return _Exclusion(self, create)

    def enter(self, create: bool) -> bool:
        """Take the kernel lock. Return False if the directory is missing and should not be created."""
        try:
            self._descriptor = self._locked_sidecar(create)
        except (FileNotFoundError, NotADirectoryError):
            if create:
                raise
            return False
        return True

    def leave(self) -> None:
        """Release the kernel lock if it is held."""
        descriptor, self._descriptor, self._read_in_turn = self._descriptor, -1, None
        self._is_new = False
        if descriptor != -1:
            unlock_and_close(descriptor)

    def read(self) -> StoredLease | None:
        if self._is_new:
            return None
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            stored = _stored(descriptor, os.read(descriptor, 65536))
        finally:
            os.close(descriptor)
        if self._descriptor != -1:
            self._read_in_turn = stored
        return stored

    def claim(self, lease: Lease, replacing: StoredLease | None, *, same_holder: bool) -> Claim | None:
        return claim_in_turn(self, lease, replacing, same_holder=same_holder)

    def renew(self, lease: Lease, replacing: StoredLease) -> StoredLease | None:
        return self.write(lease, replacing) if self._is_still(replacing) else None

    def write(self, lease: Lease, replacing: StoredLease | None) -> StoredLease:
        del replacing  # unchanged: the caller has had the kernel lock since it was read
        content = lease.to_bytes()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(self._temporary, flags, 0o666)
        try:
            os.write(descriptor, content)
            stored = _stored(descriptor, content)
        except OSError as error:
            name_path(error, self._path)
            with contextlib.suppress(OSError):
                os.unlink(self._temporary)
            raise
        finally:
            os.close(descriptor)
        os.replace(self._temporary, self._path)
        self._read_in_turn = None
        self._is_new = False
        return stored

    def delete(self, stored: StoredLease) -> bool:
        if not self._is_still(stored):
            return False
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        self._read_in_turn = None
        return True

    def read_fence(self) -> int:
        if self._is_new:
            return 0
        return fence_from_bytes(os.pread(self._descriptor, _FENCE_DIGITS, 0), self._sidecar)

    def write_fence(self, number: int) -> None:
        # Fixed width: written in place by one call, there is never a shorter or longer number to be read.
        os.pwrite(self._descriptor, b"%0*d" % (_FENCE_DIGITS, number), 0)

    def _is_still(self, stored: StoredLease) -> bool:
        return self._read_in_turn is stored or self.read() == stored

    def _locked_sidecar(self, create: bool) -> int:
        while True:
            self._is_new = False
            descriptor = self._open_sidecar(create)
            try:
                self._lock(descriptor)
                if self._is_current(descriptor):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            # Someone removed the whole directory meanwhile: this lock would exclude no one.
            os.close(descriptor)

    def _is_current(self, descriptor: int) -> bool:
        try:
            found = os.stat(self._sidecar)
        except FileNotFoundError:
            return False
        locked = os.fstat(descriptor)
        # Another process may have taken and released the lease since the directory was made.
        self._is_new = self._is_new and locked.st_size == 0
        return locked.st_ino == found.st_ino and locked.st_dev == found.st_dev

    def _open_sidecar(self, create: bool) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        if create and self._is_likely_new:
            self._is_likely_new = False
            self._is_new = self._make_directory()
        try:
            return os.open(self._sidecar, flags, 0o666)
        except FileNotFoundError:
            if not create:
                raise
            self._is_new = self._make_directory()
            return os.open(self._sidecar, flags, 0o666)

    def _make_directory(self) -> bool:
        """Create the directory of the lock file. Return whether this call created the (empty) directory."""
        try:
            os.mkdir(self._directory)  # nearly always only the last part is missing
        except FileExistsError:
            return False
        except FileNotFoundError:
            os.makedirs(self._directory, exist_ok=True)
            return False
        return True

    def _lock(self, descriptor: int) -> None:
        started = time.monotonic()
        while not try_lock(descriptor):
            if time.monotonic() - started > self._busy_seconds:
                raise Unavailable(
                    f"lease {self._path}: {self._sidecar} has been locked for {self._busy_seconds:.0f} s by "
                    "another process, which must be stopped or hung (see `lslocks`)"
                )
            time.sleep(_BUSY_POLL_SECONDS)


def _stored(descriptor: int, content: bytes) -> StoredLease:
    mark = os.fstat(descriptor)
    return StoredLease(content, f"{mark.st_ino}.{mark.st_mtime_ns}")
