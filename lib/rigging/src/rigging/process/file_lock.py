"""Kernel locks (flock) on open files and directories, held until released or until the process ends."""

import fcntl
import os


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Take the lock of an open file without waiting.

    Args:
        descriptor: The open file or directory. Forks share the lock.
        shared: Take a shared lock, which excludes only exclusive ones.

    Returns:
        False if another process has the lock.

    Raises:
        OSError: The filesystem does not support locks.
    """
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def open_lock_file(path: str | os.PathLike[str]) -> int:
    """Open a file to lock and return its descriptor. A missing file is created for this user only."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def unlock_and_close(descriptor: int) -> None:
    """Release the lock and close the file, even if a forked child has a copy of the descriptor."""
    try:  # noqa: SIM105  (half the time of `suppress`; a step does this twice)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    except OSError:
        pass
    os.close(descriptor)
