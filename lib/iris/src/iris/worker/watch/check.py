"""Runs a health command in a task's context: `python -P check.py PID COMMAND [UID GROUP...]`, by path, without iris.

Enters the task's namespaces, adopts its directory, variables and uid, and executes the command.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_NEW_MOUNTS, _NEW_USER = 0x20000, 0x10000000


def _enter(pid: int) -> None:
    """Enter the task's namespaces that differ from this process's."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    for name, kind in (("user", _NEW_USER), ("mnt", _NEW_MOUNTS)):
        theirs = f"/proc/{pid}/ns/{name}"
        if os.readlink(theirs) == os.readlink(f"/proc/self/ns/{name}"):
            continue
        descriptor = os.open(theirs, os.O_RDONLY | os.O_CLOEXEC)
        if libc.setns(descriptor, kind) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the task's {name} namespace")
        os.close(descriptor)


def main() -> "NoReturn":
    """Exec the command; exit 125 if that fails."""
    pid, command = int(sys.argv[1]), sys.argv[2]
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = dict(item.split(b"=", 1) for item in file.read().split(b"\0") if b"=" in item)
        directory = os.readlink(f"/proc/{pid}/cwd")
        _enter(pid)
        # Nothing is imported from here on: what is seen is the task's to choose.
        if sys.argv[3:]:
            uid, *groups = map(int, sys.argv[3:])
            os.setgroups(groups)
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        os.chdir(directory)
        os.execve("/bin/sh", ["sh", "-c", command], variables)
    except OSError as error:
        print(f"cannot run the health command: {error}", file=sys.stderr)
    sys.exit(125)


if __name__ == "__main__":
    main()
