"""Reads files that a task, which may be malicious, writes for its worker, such as its error."""

import os
import stat
from typing import Final, NamedTuple


def read_task_file(path: str, most: int, owner: int = 0) -> bytes:
    """Return the first bytes of a file. Opens regular files only, follows no link, and never blocks.

    Args:
        path: The file, in a directory that the task cannot rename.
        most: Maximum number of bytes.
        owner: The uid that must own the file; 0 for any.

    Raises:
        OSError: The file does not exist, or is not a regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is not a regular file")
        if owner and found.st_uid != owner:
            raise OSError("another user owns it")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)


_ERROR_BYTES: Final = 8192
_LONGEST_TEXT: Final = 4 * _ERROR_BYTES
EXCEPTION_BYTES: Final = 64 * 1024


class CallableError(NamedTuple):
    """The error as text, and the exception as pickled by the task; both may be empty."""

    text: str = ""
    exception: bytes = b""


def read_error_file(path: str, owner: int = 0) -> CallableError:
    """Return the content of a task's IRIS_ERROR_FILE; empty if there is none. `owner` as in `read_task_file`."""
    try:
        found = read_task_file(path, _LONGEST_TEXT + 1 + EXCEPTION_BYTES + 1, owner)
    except OSError:
        return CallableError()
    text, _, exception = found.partition(b"\0")
    return CallableError(
        text[:_ERROR_BYTES].decode(errors="replace").strip(), exception if len(exception) <= EXCEPTION_BYTES else b""
    )
