"""Kernel locks (flock) on open files and directories: held until given up, or until the process ends."""

import fcntl
import os


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Take the lock of an open file without waiting.

    Args:
        descriptor: The open file or directory. Forks have the lock too.
        shared: Keep out only those who want it for themselves.

    Returns:
        False when another has it.

    Raises:
        OSError: The filesystem offers no locks.
    """
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def open_lock_file(path: str | os.PathLike[str]) -> int:
    """Open a file to lock, made for this user alone if it is missing; return its descriptor."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def unlock_and_close(descriptor: int) -> None:
    """Give the lock up and close the file, even when a child that was forked meanwhile has a copy of the descriptor."""
    try:  # noqa: SIM105  (half the time of `suppress`; a step does this twice)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    except OSError:
        pass
    os.close(descriptor)
