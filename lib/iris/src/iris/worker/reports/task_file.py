"""Reading what a task has left for its worker, as its error. The task made it, and may mean harm."""

import os
import stat
from typing import Final, NamedTuple


def read_task_file(path: str, most: int, owner: int = 0) -> bytes:
    """Return the first bytes of a file: nothing but a file is opened, no link is followed, and nothing is waited for.

    Args:
        path: The file, in a directory whose name the task cannot give to another.
        most: How many.
        owner: The uid whose file it must be; 0: anybody's.

    Raises:
        OSError: It is not there, or something else.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is no file")
        if owner and found.st_uid != owner:
            raise OSError("it is another user's file")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)


_ERROR_BYTES: Final = 8192
_LONGEST_TEXT: Final = 4 * _ERROR_BYTES
EXCEPTION_BYTES: Final = 64 * 1024


class CallableError(NamedTuple):
    """The error as text, and the exception as the task has pickled it; both may be empty."""

    text: str = ""
    exception: bytes = b""


def read_error_file(path: str, owner: int = 0) -> CallableError:
    """Return the content of a task's IRIS_ERROR_FILE; nothing where there is none. `owner` as of `read_task_file`."""
    try:
        found = read_task_file(path, _LONGEST_TEXT + 1 + EXCEPTION_BYTES + 1, owner)
    except OSError:
        return CallableError()
    text, _, exception = found.partition(b"\0")
    return CallableError(
        text[:_ERROR_BYTES].decode(errors="replace").strip(), exception if len(exception) <= EXCEPTION_BYTES else b""
    )
