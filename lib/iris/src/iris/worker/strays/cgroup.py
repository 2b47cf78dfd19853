"""The guardian's control group: contains its children, and kills them in one step.

Only version 2 (also beside version 1) has cgroup.kill. Without a group the guardian uses marks and environments.
"""

import logging
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from iris.worker.limits.groups import remove_group
from iris.worker.limits.probe import BESIDE
from iris.worker.limits.stale import remove_stale

logger = logging.getLogger(__name__)

_RECORD: Final = "guardian.cgroup"
MOUNTS: Final = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))


def kill_recorded(work_dir: Path) -> None:
    """Kill the processes in an earlier guardian's group, and remove the group."""
    record = work_dir / _RECORD
    try:
        path = Path(record.read_text().strip())
    except (OSError, ValueError):
        return
    if path.name.startswith(_name(work_dir)) and (path / "cgroup.kill").exists():
        _kill(path)
    record.unlink(missing_ok=True)


def enter(work_dir: Path, mounts: Sequence[Path] = MOUNTS) -> Path | None:
    """Create a group and move this process into it; return None if that is not possible."""
    parent = _own_group(mounts)
    if parent is None or not (parent / "cgroup.procs").exists():
        return None
    remove_stale(str(parent))
    path = parent / f"{_name(work_dir)}-{os.getpid()}"
    try:
        path.mkdir()
        # Noted before anything is in it: the next guardian must find what this one leaves.
        (work_dir / _RECORD).write_text(f"{path}\n")
        if not (path / "cgroup.kill").exists():
            raise OSError("the kernel has no cgroup.kill")
        (path / "cgroup.procs").write_text(f"{os.getpid()}\n")
    except OSError as error:
        logger.info("cannot create a control group for the tasks (%s): marks identify them instead", error)
        _remove(path)
        return None
    return path


def leave(path: Path, work_dir: Path) -> None:
    """Move this process out of its group and kill the remaining processes."""
    try:
        _move_to(path.parent)
    except OSError as error:
        logger.warning("cannot leave %s: %s", path, error)
        return
    _kill(path)
    (work_dir / _RECORD).unlink(missing_ok=True)


def _move_to(group: Path) -> None:
    """Enter a group, or, if it has controllers, the child group with its processes. Raises OSError."""
    try:
        (group / "cgroup.procs").write_text(f"{os.getpid()}\n")
    except OSError:
        (group / BESIDE / "cgroup.procs").write_text(f"{os.getpid()}\n")


def _name(work_dir: Path) -> str:
    return f"iris-{zlib.crc32(bytes(work_dir)):08x}"


def _own_group(mounts: Sequence[Path]) -> Path | None:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    path = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    mount = next((mount for mount in mounts if (mount / "cgroup.controllers").exists()), None)
    return mount / path.lstrip("/") if path is not None and mount is not None else None


def _kill(path: Path) -> None:
    try:
        (path / "cgroup.kill").write_text("1\n")
    except OSError as error:
        logger.warning("cannot kill the processes in %s: %s", path, error)
    _remove(path)


def _remove(path: Path) -> None:
    if not remove_group(str(path)):  # what was killed is still dying; an empty group left behind costs nothing
        logger.info("%s cannot be removed yet", path)
