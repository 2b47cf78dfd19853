"""Finds, attributes, kills and reaps processes that outlive their attempt.

A child that calls setsid leaves its attempt's process group, so killing the group misses it. The guardian is a child
subreaper: when the parent of a process dies, the kernel reparents the process to the guardian. A child that the
guardian did not start itself is an *orphan*. An orphan belongs to the attempt whose *mark* it carries, and is killed
when that attempt ends.

The mark is the soft limit RLIMIT_RSS, which Linux has ignored since 2.4.30. Every process inherits it, regardless of
changes to its environment, session or descriptors, and it takes two system calls per start. If a process has set this
limit itself, IRIS_ATTEMPT_ID in its initial environment identifies the attempt. Without either, the process belongs to
every attempt that was live when it was first seen.
"""

import ctypes
import os
import re
import resource
import signal
import zlib
from collections.abc import Set
from pathlib import Path
from typing import Final

ATTEMPT_VARIABLE: Final = "IRIS_ATTEMPT_ID"
WORK_DIR_VARIABLE: Final = "IRIS_WORK_DIR"

_PR_SET_CHILD_SUBREAPER: Final = 36
_CHILDREN_BYTES: Final = 1 << 18
_MARK: Final = 1 << 62
_NUMBER_BITS: Final = 32
_RSS_LINE: Final = re.compile(rb"^Max resident set +(\d+) ", re.MULTILINE)


def become_subreaper() -> None:
    """Make this process a child subreaper, the new parent of orphaned descendants. Raises OSError if the kernel
    refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(number)}")


def environment_value(pid: int, name: str) -> str | None:
    """Return the value of variable `name` in the initial environment of process `pid`; None if unset or unreadable."""
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None  # gone, a zombie, or another user's
    prefix = name.encode() + b"="
    for entry in data.split(b"\0"):
        if entry.startswith(prefix):
            return os.fsdecode(entry[len(prefix) :])
    return None


class Marks:
    """Inherited numbers that identify the processes of an attempt. All marks of a work directory have a common part.

    Args:
        work_dir: The work directory, which determines the common part.
    """

    def __init__(self, work_dir: Path) -> None:
        self._base = _MARK | (zlib.crc32(bytes(work_dir)) & 0x3FFFFFFF) << _NUMBER_BITS
        self._own, self._hard = resource.getrlimit(resource.RLIMIT_RSS)
        self.usable = self._hard == resource.RLIM_INFINITY

    def put_on(self, number: int) -> None:
        """Mark every process started from now on, until `take_off`."""
        if self.usable:
            resource.setrlimit(resource.RLIMIT_RSS, (self._base | number, self._hard))

    def take_off(self) -> None:
        if self.usable:
            resource.setrlimit(resource.RLIMIT_RSS, (self._own, self._hard))

    def mark(self, pid: int, number: int) -> None:
        """Mark a process that was forked from a helper with another mark."""
        if self.usable:
            resource.prlimit(pid, resource.RLIMIT_RSS, (self._base | number, self._hard))

    def number_of(self, pid: int) -> int | None:
        """Return the number of a process's mark; None if it has no mark of this work directory."""
        try:
            found = _RSS_LINE.search(Path(f"/proc/{pid}/limits").read_bytes())
        except OSError:
            return None
        value = int(found[1]) if found is not None else 0
        return value & ((1 << _NUMBER_BITS) - 1) if value >> _NUMBER_BITS == self._base >> _NUMBER_BITS else None


def kill_leftovers(work_dir: Path) -> list[int]:
    """Kill every process that an earlier guardian of `work_dir` started and left behind; return their pids.

    Their mark or initial environment identifies them, so this never kills a process with a reused pid.
    """
    marks = Marks(work_dir)
    mine = _self_and_ancestors()
    killed: list[int] = []
    for _ in range(100):
        # What is killed may have forked meanwhile.
        found = [pid for pid in _all_pids() if pid not in mine and _is_of(pid, work_dir, marks) and _kill(pid)]
        if not found:
            break
        killed += found
    return sorted(set(killed))


class OrphanReaper:
    """Handles the children that this process did not start itself.

    Args:
        adopt_unmarked: Also kill orphans that cannot be attributed. Correct only in a subreaper whose only children are
            attempts.
    """

    def __init__(self, marks: Marks, adopt_unmarked: bool = False) -> None:
        self._marks = marks
        self._adopt_unmarked = adopt_unmarked
        self._own: set[int] = set()
        self._numbers: dict[int, str] = {}
        self._owners: dict[int, frozenset[str]] = {}
        self._children_file: int | None = None
        self._count = 0
        self._is_marked = False

    def expect(self, owner: str) -> int:
        """Return a new number for marks of the owner's processes."""
        self._count += 1
        self._numbers[self._count] = owner
        return self._count

    def put_mark_on(self, number: int) -> None:
        """Mark every process started from now on with this number, until `take_mark_off`."""
        self._is_marked = True
        self._marks.put_on(number)

    def take_mark_off(self) -> None:
        if self._is_marked:
            self._is_marked = False
            self._marks.take_off()

    def mark(self, pid: int, number: int) -> None:
        """Mark a waiting process that a helper started for this process. Raises OSError."""
        self._marks.mark(pid, number)

    def add_own(self, pid: int) -> None:
        """Record that this process started `pid` and reaps it."""
        self._own.add(pid)

    def remove_own(self, pid: int) -> None:
        """Record that `pid` has been reaped."""
        self._own.discard(pid)

    def owners(self, live: Set[str]) -> dict[int, str]:
        """Return the owner by pid of orphans that belong to exactly one attempt of `live`."""
        found: dict[int, str] = {}
        for pid in self._children():
            if pid not in self._own:
                whose = self._owners_of(pid, live) & live
                if len(whose) == 1:
                    found[pid] = next(iter(whose))
        return found

    def forget(self, number: int) -> None:
        """Release the number: processes that still carry it no longer belong to an attempt."""
        self._numbers.pop(number, None)

    def close(self) -> None:
        """Close the descriptor."""
        if self._children_file is not None:
            os.close(self._children_file)
            self._children_file = None

    def sweep(self, live: Set[str]) -> bool:
        """Reap dead orphans, and kill orphans without an attempt in `live`; return whether all of them are gone.

        False means that some may not be dead yet and their descendants may still appear: sweep again in a moment.
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
        return bool(self._owners[pid]) or self._adopt_unmarked

    def _owners_of(self, pid: int, live: Set[str]) -> frozenset[str]:
        owners = self._owners.get(pid)
        if owners is None:
            marked = self._marked_owner(pid) or environment_value(pid, ATTEMPT_VARIABLE)
            if marked is not None:
                owners = frozenset((marked,))
            else:
                owners = frozenset(live) if self._adopt_unmarked else frozenset()
            self._owners[pid] = owners
        return owners

    def _marked_owner(self, pid: int) -> str | None:
        number = self._marks.number_of(pid)
        # A number that is forgotten is of an attempt that has ended.
        return None if number is None else self._numbers.get(number, f"ended attempt number {number}")

    def _children(self) -> list[int]:
        # Orphans are given to the main thread of the subreaper, and that is also where attempts are started.
        if self._children_file is None:
            try:
                path = f"/proc/self/task/{os.getpid()}/children"
                self._children_file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
                return [pid for pid in _all_pids() if _parent(pid) == os.getpid()]
        return [int(pid) for pid in os.pread(self._children_file, _CHILDREN_BYTES, 0).split()]


def _is_of(pid: int, work_dir: Path, marks: Marks) -> bool:
    return marks.number_of(pid) is not None or environment_value(pid, WORK_DIR_VARIABLE) == str(work_dir)


def _kill(pid: int) -> bool:
    """Kill a process; return False if the kill has no effect, for example on a zombie."""
    try:
        if Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z":
            return False
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return True


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _parent(pid: int) -> int:
    """Return the parent's pid; 0 if there is none or `pid` is gone."""
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
