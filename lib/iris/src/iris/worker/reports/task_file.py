"""Reading what a task has left for its worker. The task made it, and may mean harm."""

import os
import stat


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
