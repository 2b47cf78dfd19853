"""Processes that outlive the attempt that started them: found, attributed, killed and reaped.

A child that calls setsid leaves its attempt's process group, so killing the group misses it. The worker is a child
subreaper: when such a process's parent dies, the kernel gives it to the worker, and every child of the worker that the
worker did not start itself is a *stranger*. Its attempt is named by its environment; a stranger that has wiped its
environment belongs to any attempt that was live when it was first seen. It is killed once none of these is live.
"""

import ctypes
import logging
import os
import signal
from collections.abc import Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

ATTEMPT_VARIABLE: Final = "IRIS_ATTEMPT_ID"
WORK_DIR_VARIABLE: Final = "IRIS_WORK_DIR"

_PR_SET_CHILD_SUBREAPER: Final = 36
_CHILDREN_BYTES: Final = 1 << 18


def become_subreaper() -> None:
    """Make this process the parent of its descendants' orphans. Raises OSError when the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(number)}")


def environment_value(pid: int, name: str) -> str | None:
    """The value of variable `name` that process `pid` was started with; None when unset or unreadable."""
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None  # gone, a zombie, or another user's
    prefix = name.encode() + b"="
    for entry in data.split(b"\0"):
        if entry.startswith(prefix):
            return os.fsdecode(entry[len(prefix) :])
    return None


def kill_leftovers(work_dir: Path) -> list[int]:
    """Kill every process that a former worker of `work_dir` started and left behind; returns their pids.

    They are known by the environment they were started with, so no pid that was reused since is ever hit.
    """
    mine = _self_and_ancestors()
    killed = []
    for pid in _all_pids():
        if pid not in mine and environment_value(pid, WORK_DIR_VARIABLE) == str(work_dir):
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
            killed.append(pid)
    return killed


@dataclass(slots=True)
class Strangers:
    """The children this process did not start itself.

    Args:
        adopt_unmarked: Also kill strangers whose environment names no attempt. Only right in a process that has no
            children but attempts, and is a subreaper.
    """

    adopt_unmarked: bool = False
    _own: set[int] = field(default_factory=set)
    _owners: dict[int, frozenset[str]] = field(default_factory=dict)
    _children_file: int | None = None

    def add_own(self, pid: int) -> None:
        """`pid` was started by this process on purpose, which reaps it itself."""
        self._own.add(pid)

    def remove_own(self, pid: int) -> None:
        """`pid` has been reaped."""
        self._own.discard(pid)

    def close(self) -> None:
        """Release the one descriptor this holds."""
        if self._children_file is not None:
            os.close(self._children_file)
            self._children_file = None

    def sweep(self, live: Set[str]) -> bool:
        """Reap dead strangers, kill those of whom no attempt in `live` remains; True when none of these is left.

        False means that some were killed but may not be dead yet, so descendants of theirs may still appear: sweep
        again in a moment.
        """
        seen: set[int] = set()
        clean = True
        for pid in self._children():
            if pid in self._own or _reap(pid):
                continue
            seen.add(pid)
            if self._owners_of(pid, live).isdisjoint(live) and self._may_kill(pid):
                clean = False
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        if self._owners:
            self._owners = {pid: owners for pid, owners in self._owners.items() if pid in seen}
        return clean

    def _may_kill(self, pid: int) -> bool:
        return bool(self._owners[pid]) or self.adopt_unmarked

    def _owners_of(self, pid: int, live: Set[str]) -> frozenset[str]:
        owners = self._owners.get(pid)
        if owners is None:
            marked = environment_value(pid, ATTEMPT_VARIABLE)
            if marked is not None:
                owners = frozenset((marked,))
            else:
                owners = frozenset(live) if self.adopt_unmarked else frozenset()
            self._owners[pid] = owners
        return owners

    def _children(self) -> list[int]:
        # Orphans are given to the main thread of the subreaper, and that is also where attempts are started.
        if self._children_file is None:
            try:
                path = f"/proc/self/task/{os.getpid()}/children"
                self._children_file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
                return [pid for pid in _all_pids() if _parent(pid) == os.getpid()]
        return [int(pid) for pid in os.pread(self._children_file, _CHILDREN_BYTES, 0).split()]


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _parent(pid: int) -> int:
    """The parent's pid; 0 when there is none, or `pid` is gone."""
    try:
        # The second field is the program's name in parentheses, which may itself hold any character.
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _self_and_ancestors() -> set[int]:
    found: set[int] = set()
    pid = os.getpid()
    while pid and pid not in found:
        found.add(pid)
        pid = _parent(pid)
    return found


def _reap(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
