"""Leaves a service's own control group, so that it can have child groups for attempts (version 2)."""

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from iris.worker.limits.plan import hierarchies_of

logger = logging.getLogger(__name__)

LEAF: Final = "worker"
"""The child group for the service's own processes; equal to `DelegateSubgroup=` of its unit."""

_MARKS: Final = ("trusted.delegate", "user.delegate")


def is_marked(group: Path) -> bool:
    """Return whether systemd marks this group as delegated to its service (`Delegate=yes`)."""
    for name in _MARKS:
        with contextlib.suppress(OSError):
            if os.getxattr(group, name) == b"1":
                return True
    return False


def leave_service_group(
    own: Path = Path("/proc/self/cgroup"),
    mounts: Path = Path("/proc/self/mountinfo"),
    make: Callable[[str], None] = os.mkdir,
) -> Path | None:
    """Move this process from a group that systemd delegated to its service into a leaf group.

    A group that contains processes cannot have child groups with controllers. systemd 254 and later moves the process
    itself if the unit sets `DelegateSubgroup=`. Call this before starting other processes, which would stay behind.

    Args:
        own: A file like /proc/self/cgroup.
        mounts: A file like /proc/self/mountinfo.
        make: Creates a group's directory, like mkdir(2).

    Returns:
        The leaf group; None if this process is in no delegated group, or cannot leave it.
    """
    try:
        found = [item for item in hierarchies_of(own.read_text(), mounts.read_text()) if item.version == 2]
        for hierarchy in found:
            group = Path(hierarchy.directory)
            if is_marked(group) and (group / "cgroup.controllers").read_text().strip():
                return _enter_leaf(group, make)
    except OSError as error:
        logger.warning("the worker stays in its service's control group, so limits are soft: %s", error)
    return None


def _enter_leaf(group: Path, make: Callable[[str], None]) -> Path:
    leaf = group / LEAF
    with contextlib.suppress(FileExistsError):
        make(str(leaf))
    (leaf / "cgroup.procs").write_text(f"{os.getpid()}\n")
    return leaf
