"""Leaves a service's own control group, so that the groups of attempts can be made below it (version 2)."""

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from iris.worker.limits.plan import hierarchies_of

logger = logging.getLogger(__name__)

LEAF: Final = "worker"
"""The group below the service's for its own processes; `DelegateSubgroup=` of its unit names the same."""

_MARKS: Final = ("trusted.delegate", "user.delegate")


def is_marked(group: Path) -> bool:
    """Whether systemd says that it has given this group to its service (`Delegate=yes`)."""
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
    """Move this process out of a group that systemd has given to its service, into a leaf below it.

    A group with processes of its own cannot have groups with controllers below it. systemd does this by itself from
    254 on, where the unit asks for it (`DelegateSubgroup=`). Call it before other processes are started: they would
    stay behind.

    Args:
        own: As /proc/self/cgroup.
        mounts: As /proc/self/mountinfo.
        make: Makes a group: see mkdir(2).

    Returns:
        The leaf; None: this process is in no such group, or cannot leave it, and stays where it is.
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
