"""Checks the requirements of `--task-users`: uids that nobody else uses, and files that tasks can read."""

import fcntl
import glob
import grp
import importlib.util
import os
import pwd
import stat
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from iris.python_tools.uv import uv_program
from iris.worker.users.identity import TaskIdentity, run_as
from iris.worker.users.uids import UidRange
from rigging.errors import Conflict, InvalidRequest

_CLAIMS: Final = Path("/run/iris-task-users.lock")
_DEVICES: Final = ("/dev/accel*", "/dev/nvidia*", "/dev/vfio/*", "/dev/dri/*", "/dev/kfd")
_DEVICE_GROUPS: Final = ("video", "render")
_OPTION: Final = "--task-users"


def check_host(uids: UidRange, work_dir: Path) -> None:
    """Raise InvalidRequest with instructions if tasks cannot use uids of this range.

    Args:
        uids: The range.
        work_dir: The worker's directory, which may not exist yet.
    """
    if os.geteuid() != 0:
        raise InvalidRequest(
            f"{_OPTION} needs a worker that runs as root, because only root can start tasks as other users"
        )
    others = [f"user {entry.pw_name}" for entry in pwd.getpwall() if entry.pw_uid in uids]
    others += [f"group {entry.gr_name}" for entry in grp.getgrall() if entry.gr_gid in uids]
    if others:
        raise InvalidRequest(
            f"{_OPTION} {uids}: the range contains {', '.join(others[:3])} of this host; give another range"
        )
    for name in ("uid_map", "gid_map"):
        if not _is_mapped(Path(f"/proc/self/{name}").read_text(), uids):
            raise InvalidRequest(f"{_OPTION} {uids}: this container does not map these ids (/proc/self/{name})")
    if closed := closed_to(TaskIdentity(uids.first), needed_paths(work_dir)):
        raise InvalidRequest(
            f"{_OPTION}: tasks with their own uids cannot read {closed}. Keep the work directory (--work-dir), "
            "this installation and its Python where other users can read, such as /opt and /var/lib (uv: "
            "UV_PYTHON_INSTALL_DIR), not in a private home directory"
        )


def claim(uids: UidRange) -> int:
    """Reserve the range on this host until this process ends; return the open lock file.

    Raises:
        Conflict: Another worker has reserved part of it.
        OSError: The lock cannot be acquired.
    """
    descriptor = os.open(_CLAIMS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, uids.last - uids.first + 1, uids.first)
    except (BlockingIOError, PermissionError):
        os.close(descriptor)
        raise Conflict(
            f"{_OPTION} {uids}: another worker on this host uses part of the range; give each worker its own"
        ) from None
    return descriptor


def device_groups(patterns: Sequence[str] = _DEVICES) -> tuple[tuple[int, ...], list[str]]:
    """Return the groups that may use this host's devices, and the devices that only root may use.

    Args:
        patterns: The names of devices.
    """
    groups = {entry.gr_gid for entry in grp.getgrall() if entry.gr_name in _DEVICE_GROUPS}
    closed = []
    for path in sorted(path for pattern in patterns for path in glob.glob(pattern)):
        status = os.stat(path)
        if not stat.S_ISCHR(status.st_mode) or status.st_mode & 0o006 == 0o006:
            continue
        if status.st_gid and status.st_mode & 0o060 == 0o060:
            groups.add(status.st_gid)
        else:
            closed.append(path)
    return tuple(sorted(groups)), closed


def needed_paths(work_dir: Path) -> list[str]:
    """Return the paths that tasks must be able to read: the work directory, the worker's Python and packages, and
    uv.
    """
    found = [str(work_dir.absolute().parent), os.path.realpath(sys.executable), sys.prefix, os.__file__]
    for name in ("iris", "cloudpickle"):
        spec = importlib.util.find_spec(name)
        found += [os.path.dirname(spec.origin)] if spec is not None and spec.origin else []
    return [*found, uv_program()]


def closed_to(identity: TaskIdentity, paths: Iterable[str]) -> str:
    """Return the first path that this identity cannot read, and the reason; empty if there is none. Raises OSError."""

    def look() -> str:
        for path in paths:
            for place in (*reversed(Path(path).parents), Path(path)):
                # A directory that is not made yet is the worker's to make.
                if place.exists() and not os.access(place, os.X_OK if place.is_dir() else os.R_OK):
                    return f"{path}: {place} is not accessible to other users" if str(place) != path else f"{path}"
        return ""

    return run_as(identity, look) or ""


def _is_mapped(text: str, uids: UidRange) -> bool:
    ranges = [tuple(map(int, line.split())) for line in text.splitlines()]
    return any(first <= uids.first and uids.last < first + count for first, _, count in ranges)
