"""Local copies in progress: one part file per file version, claimed by one process at a time.

The claim is a kernel lock on the part file. The kernel releases it when the process ends, so it needs no renewal. The
part file keeps the copied bytes, and the next claimant resumes. A stopped process does not block others forever: a part
that has not grown for the timeout is ignored.
"""

import contextlib
import ctypes
import errno
import functools
import hashlib
import logging
import os
from collections.abc import Callable

from rigging.clock import SYSTEM_CLOCK, SleepingClock
from rigging.filesystem.atomic import TEMPORARY_PREFIX
from rigging.process.file_lock import try_lock, unlock_and_close

logger = logging.getLogger(__name__)

_POLL_START_SECONDS = 0.0005
_POLL_LIMIT_SECONDS = 0.02
#: Errors with which a filesystem says that it has no kernel locks on this.
LOCK_NOT_OFFERED = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)
#: Errors with which a filesystem says that it cannot do it at all.
_UNSUPPORTED = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.EXDEV, errno.EMLINK)
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
RenameAt = Callable[[int, bytes, int, bytes, int], int]


class Part:
    """A claimed part file, open for appending.

    Args:
        path: Its path, beside the final file.
        descriptor: The open file that holds the kernel lock.
        size: Its size in bytes, including bytes left by an earlier copier.

    Attributes:
        kernel_rename: The kernel's rename that does not replace files; None where it is missing.
    """

    __slots__ = ("descriptor", "kernel_rename", "path", "size")

    def __init__(self, path: str, descriptor: int, size: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self.size = size
        self.kernel_rename = kernel_rename

    def restart(self) -> None:
        """Discard the content."""
        os.ftruncate(self.descriptor, 0)
        self.size = 0

    def append(self, data: bytes | memoryview) -> None:
        """Write all of `data` at the end."""
        left = memoryview(data)
        while left:
            count = os.pwrite(self.descriptor, left, self.size)
            self.size += count
            left = left[count:]

    def publish(self, final: str) -> bool:
        """Rename the part to its final name. Return False if a file of that name has appeared; that file is not
        changed.
        """
        try:
            _rename_without_replacing(self.path, final, self.kernel_rename())
        except FileExistsError:
            self.discard()
            return False
        return True

    def discard(self) -> None:
        """Remove the part file."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def close(self) -> None:
        """Release the claim. The part file keeps its content for the next claimant."""
        if self.descriptor >= 0:
            unlock_and_close(self.descriptor)
            self.descriptor = -1


def part_path(final: str, fingerprint: str) -> str:
    """Return the part file's name for one version of a file."""
    directory, _, name = final.rpartition("/")
    digest = hashlib.blake2b(os.fsencode(f"{name}|{fingerprint}"), digest_size=12).hexdigest()
    return f"{directory}/{TEMPORARY_PREFIX}mirror-{digest}"


def claim_part(final: str, fingerprint: str, stall_timeout: float, clock: SleepingClock = SYSTEM_CLOCK) -> Part | None:
    """Claim the part file of `final`, waiting for a process that copies the same version.

    Args:
        final: The path of the finished copy.
        fingerprint: The version to copy.
        stall_timeout: Seconds without growth after which another process is ignored, and a new part is started.
        clock: The clock; replaced in tests.

    Returns:
        The claimed part, or None if the file exists by now.
    """
    path = part_path(final, fingerprint)
    watch = Watch(stall_timeout, clock)
    while True:
        kept = False
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            continue
        part = Part(path, descriptor, 0)
        try:
            claimed = _lock(part)
            if claimed and os.path.lexists(final):
                part.discard()
                return None
            if claimed:
                kept = True
                return part
            if not watch.wait(descriptor):
                logger.warning("%s: no progress of its copier for %.0f s; copying beside it", final, stall_timeout)
                path = f"{path}-{os.getpid()}-{os.urandom(6).hex()}"
                watch = Watch(stall_timeout, clock)
        finally:
            if not kept:
                part.close()
        if os.path.lexists(final):
            return None


def create_part(final: str, fingerprint: str) -> Part | None:
    """Claim the part file of `final` if there is none yet. Return None if `claim_part` has to decide."""
    path = part_path(final, fingerprint)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except (FileExistsError, FileNotFoundError):
        return None
    part = Part(path, descriptor, 0)
    if _lock(part):
        if not os.path.lexists(final):
            return part
        part.discard()
    part.close()
    return None


def _lock(part: Part) -> bool:
    """Take the kernel lock. Return False if another process holds the lock, or the name now refers to another file."""
    if not try_lock(part.descriptor):
        return False
    mine = os.fstat(part.descriptor)
    try:
        named = os.stat(part.path)
    except FileNotFoundError:
        return False
    if (mine.st_ino, mine.st_dev) != (named.st_ino, named.st_dev):
        return False
    if mine.st_nlink != 1:
        # Published, but its copier died before it removed this name: appending would change the published file.
        part.discard()
        return False
    part.size = mine.st_size
    return True


def _rename_without_replacing(path: str, final: str, rename: RenameAt | None) -> None:
    """Rename a file. Raise FileExistsError if the new name is taken, perhaps by a user's file."""
    if rename is not None:
        if rename(_AT_FDCWD, os.fsencode(path), _AT_FDCWD, os.fsencode(final), _RENAME_NOREPLACE) == 0:
            return
        number = ctypes.get_errno()
        if number not in _UNSUPPORTED:
            raise OSError(number, os.strerror(number), path, None, final)
    try:
        os.link(path, final)
        os.unlink(path)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        if os.path.lexists(final):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), final) from None
        os.rename(path, final)


def rename_at(directory: int, name: str, new_name: str) -> bool:
    """Rename a file in an open directory. Return False if the new name is taken, or an atomic rename is not possible.

    Args:
        directory: The descriptor of the directory.
        name: The file's name.
        new_name: The new name.
    """
    rename = kernel_rename()
    return rename is not None and not rename(
        directory, os.fsencode(name), directory, os.fsencode(new_name), _RENAME_NOREPLACE
    )


def make_parents(directory: str, known: set[str]) -> list[str]:
    """Create a directory and its parents. Return those that were missing, outermost first."""
    if directory in known:
        return []
    known.add(directory)
    missing = []
    while not os.path.isdir(directory):
        missing.append(directory)
        directory = os.path.dirname(directory)
    made = []
    for directory in reversed(missing):
        try:
            os.mkdir(directory)
            made.append(directory)
        except FileExistsError:
            continue
    return made


@functools.cache
def kernel_rename() -> RenameAt | None:
    """Return the C library's renameat2; None where it is missing."""
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return None  # not Linux, or an old C library
    function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return function


class Watch:
    """Wait for a part file's copier while the file changes."""

    __slots__ = ("_clock", "_interval", "_seen", "_since", "_timeout")

    def __init__(self, timeout: float, clock: SleepingClock = SYSTEM_CLOCK) -> None:
        self._timeout = timeout
        self._clock = clock
        self._interval = _POLL_START_SECONDS
        self._seen: tuple[int, int, int] | None = None
        self._since = 0.0

    def wait(self, descriptor: int) -> bool:
        """Sleep briefly. Return False if nothing has changed for the timeout."""
        status = os.fstat(descriptor)
        state = (status.st_ino, status.st_size, status.st_mtime_ns)
        now = self._clock.monotonic()
        if state != self._seen:
            self._seen, self._since = state, now
        elif now - self._since >= self._timeout:
            return False
        self._clock.sleep(self._interval)
        self._interval = min(self._interval * 1.5, _POLL_LIMIT_SECONDS)
        return True
