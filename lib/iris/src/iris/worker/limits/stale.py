"""Removes the control groups of killed guardians, when a new guardian creates its groups in the same place.

`probe` removes the groups that an earlier guardian of the same work directory recorded. This module handles work
directories that no longer exist. It removes a group only if the group is empty and unlocked, and no process has the pid
in its name. A guardian locks its groups while it is alive, which also protects guardians in other pid namespaces.
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
    """Lock a group; return the descriptor that holds the lock until closed, or None if locking is not possible."""
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
    """Return whether a process has this pid."""
    return os.path.exists(f"/proc/{pid}")


def remove_stale(directory: str, alive: Callable[[int], bool] = is_alive) -> int:
    """Remove the groups of dead guardians; return how many. Skip groups that cannot be removed.

    Args:
        directory: The parent of the guardians' groups.
        alive: Returns whether a process has a pid.
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
    """Return whether a group or its child groups contain a process; an empty child group may be in use. Raises
    OSError.
    """
    for place, _, files in os.walk(path):
        if "cgroup.procs" in files:
            with open(f"{place}/cgroup.procs", "rb") as file:
                if file.read(1):
                    return True
    return False
