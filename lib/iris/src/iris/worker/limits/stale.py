"""Control groups of guardians that were killed: removed by the next one that makes its own beside them.

A guardian that finds its work directory again removes what it left there (`probe`). Where the directory is gone, nobody
knows of its groups but by their names. One is removed only if it is empty, if no process has the number that it is
named by, and if nobody has it locked: a guardian locks its groups as long as it lives, so that one in another namespace
of processes, whose number says nothing here, is known, too.
"""

import fcntl
import logging
import os
import re
from collections.abc import Callable
from typing import Final

from iris.worker.limits.groups import remove_group

logger = logging.getLogger(__name__)

_NAME: Final = re.compile(r"iris-[0-9a-f]{8}-([1-9][0-9]*)")
_AT_A_TIME: Final = 200


def lock_group(path: str) -> int | None:
    """Say that a group is in use; returns the descriptor that says so until it is closed, None where that cannot be."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def is_alive(pid: int) -> bool:
    """Whether a process has this number."""
    return os.path.exists(f"/proc/{pid}")


def remove_stale(directory: str, alive: Callable[[int], bool] = is_alive) -> int:
    """Remove the groups of dead guardians; returns how many. What cannot be removed stays.

    Args:
        directory: The group below which guardians make theirs.
        alive: As `is_alive`.
    """
    try:
        names = os.listdir(directory)
    except OSError:
        return 0
    removed = 0
    for name in names:
        match = _NAME.fullmatch(name)
        if match is None or alive(int(match[1])):
            continue
        if _remove(f"{directory}/{name}"):
            removed += 1
        if removed >= _AT_A_TIME:
            break
    if removed:
        logger.info("removed %d control groups of killed guardians in %s", removed, directory)
    return removed


def _remove(path: str) -> bool:
    try:
        if os.stat(path).st_uid != os.geteuid():
            return False
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return not _has_processes(path) and remove_group(path)
    except OSError:
        return False  # in use
    finally:
        os.close(descriptor)


def _has_processes(path: str) -> bool:
    """Whether a process is in a group or below it; an empty one among those would be another's loss. Raises OSError."""
    for place, _, files in os.walk(path):
        if "cgroup.procs" in files:
            with open(f"{place}/cgroup.procs", "rb") as file:
                if file.read(1):
                    return True
    return False
