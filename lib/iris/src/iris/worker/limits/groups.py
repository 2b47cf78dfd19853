"""Creates, enters, reads, reuses and removes the control groups of attempts.

With version 1 a process moves itself in about 15 us; moving another process takes an RCU grace period, 10 ms on an idle
host. So the single-threaded guardian enters the group, starts the attempt, which inherits the group, and returns. It
sets the limits afterwards: otherwise the kernel could kill the guardian if the limit is too low for the start.
"""

import contextlib
import errno
import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from iris.worker.limits.plan import NO_LIMITS, GroupReading, Hierarchy, LimitRequest, writes

logger = logging.getLogger(__name__)

JOIN_VARIABLE: Final = "IRIS_JOIN_GROUPS"
"""The variable with the files to which the fork of a warm interpreter writes its pid; removed before the task runs."""

_MOST_FREE: Final = 32
_LITTLE_LEFT_BYTES: Final = 1024 * 1024
"""A group can be reused if its attempt left at most this much file cache."""
_STUCK_AT_A_TIME: Final = 8
_READ_BYTES: Final = 16_384


class GroupsFailed(OSError):
    """A group could not be created or entered, which is the host's failure, not the task's."""


class OverLimit(OSError):
    """An attempt exceeded its limit before the limit could be set."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree in which groups can be created.

    Args:
        hierarchy: The hierarchy whose directory contains the groups.
        home: Descriptor of the file that moves this process back to its own group.
        lock: Descriptor of a lock that marks the tree as used (`iris.worker.limits.stale`); None for none.
        has_swap_account: Whether the kernel counts swap.
    """

    hierarchy: Hierarchy
    home: int
    has_swap_account: bool
    lock: int | None = None

    @property
    def join_file(self) -> str:
        """Return a group's file to which a process writes 0 to enter the group."""
        return "tasks" if self.hierarchy.version == 1 else "cgroup.procs"


@dataclass(slots=True, eq=False)
class Group:
    """The groups of one attempt: one in each tree, with the same name."""

    name: str
    limits: LimitRequest
    written: dict[tuple[str, str], bytes] = field(default_factory=dict)


class AttemptGroups:
    """Creates, reads and removes the groups of attempts. Moves the calling process between groups, which must be
    single-threaded.

    Args:
        trees: At least one tree.
        make: Creates a group's directory, like mkdir(2).
    """

    def __init__(self, trees: Sequence[Tree], make: Callable[[str], None] = os.mkdir) -> None:
        self._make = make
        self._trees = tuple(trees)
        self._controllers = frozenset(name for tree in trees for name in tree.hierarchy.controllers)
        self._of = {name: tree for tree in trees for name in tree.hierarchy.controllers}
        self._free: list[Group] = []
        self._stuck: list[Group] = []
        self._count = 0
        # Peaks and counters of version 2 cannot be set back.
        self._is_reusable = all(tree.hierarchy.version == 1 for tree in trees)

    @property
    def controllers(self) -> frozenset[str]:
        """The controllers that limit and measure attempts."""
        return self._controllers

    def take(self, limits: LimitRequest) -> Group:
        """Return an empty group for an attempt with these limits. Raises GroupsFailed."""
        try:
            return self._take(limits)
        except OSError as error:
            raise GroupsFailed(error.errno, f"the host cannot create its control group: {error.strerror}") from error

    def _take(self, limits: LimitRequest) -> Group:
        if self._free:
            group = self._free.pop()
            if group.limits.memory_bytes != limits.memory_bytes:
                group.limits = NO_LIMITS  # the limit of the one before could be too little for this one's start
                self.hold(group)
            group.limits = limits
            return group
        while True:
            self._count += 1
            with contextlib.suppress(FileExistsError):  # one that a former attempt's processes keep
                return self._new(Group(str(self._count), limits))

    def _new(self, group: Group) -> Group:
        made = []
        try:
            for tree in self._trees:
                path = f"{tree.hierarchy.directory}/{group.name}"
                self._make(path)
                made.append(path)
        except OSError:
            for path in made:
                remove_group(path)
            raise
        return group

    @contextlib.contextmanager
    def inside(self, group: Group) -> Iterator[None]:
        """Context manager: processes started in it belong to the group. Raises GroupsFailed."""
        entered = 0
        try:
            for tree in self._trees:
                try:
                    _write(f"{tree.hierarchy.directory}/{group.name}/{tree.join_file}", b"0")
                except OSError as error:
                    raise GroupsFailed(error.errno, f"it cannot enter its control group: {error.strerror}") from error
                entered += 1
            yield
        finally:
            for tree in self._trees[:entered]:
                os.write(tree.home, b"0")

    def join_files(self, group: Group) -> list[str]:
        """Return the files to which a process writes 0 to enter the group."""
        return [f"{tree.hierarchy.directory}/{group.name}/{tree.join_file}" for tree in self._trees]

    def join_words(self, group: Group) -> str:
        """Return the value of JOIN_VARIABLE."""
        return "\n".join(self.join_files(group))

    def hold(self, group: Group) -> None:
        """Set the group's limits. Raises OverLimit, or OSError if the kernel refuses one."""
        for tree in self._trees:
            directory = tree.hierarchy.directory
            values = writes(tree.hierarchy.version, tree.hierarchy.controllers, group.limits, tree.has_swap_account)
            pending = [item for item in values if group.written.get((directory, item[0])) != item[1]]
            if any(name == "memory.limit_in_bytes" for name, _ in pending) and tree.has_swap_account:
                self._set(group, directory, "memory.memsw.limit_in_bytes", b"-1")  # the other must not be above it
            for name, value in pending:
                self._set(group, directory, name, value)

    def _set(self, group: Group, directory: str, name: str, value: bytes) -> None:
        if group.written.get((directory, name), b"-1" if "memsw" in name else b"") == value:
            return
        try:
            _write(f"{directory}/{group.name}/{name}", value)
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise OverLimit(errno.EBUSY, f"{name} cannot be {value.decode()}: more is used") from error
            raise
        group.written[directory, name] = value

    def read(self, group: Group) -> GroupReading:
        """Return the counters of a group with processes."""
        memory = peak = kills = 0
        if (path := self._path("memory", group)) is not None:
            memory, kills = self._working_set(path), self._kills(path)
        return GroupReading(self._cpu_ms(group), memory, peak, self._processes(group), kills, self._refused(group))

    def pids(self, group: Group) -> list[int]:
        """Return the processes in a group."""
        try:
            return [
                int(word) for word in _read(f"{self._trees[0].hierarchy.directory}/{group.name}/cgroup.procs").split()
            ]
        except (OSError, ValueError):
            return []  # it is being removed

    def end(self, group: Group) -> GroupReading:
        """Return the last reading of a group whose processes have exited, and release the group for reuse or remove
        it.
        """
        left = peak = kills = 0
        path = self._path("memory", group)
        if path is not None:
            is_v1 = self._of["memory"].hierarchy.version == 1
            left = _number(f"{path}/memory.usage_in_bytes" if is_v1 else f"{path}/memory.current")
            peak = _number(f"{path}/memory.max_usage_in_bytes" if is_v1 else f"{path}/memory.peak")
            kills = self._kills(path)
        reading = GroupReading(
            cpu_ms=self._cpu_ms(group),
            memory_peak_bytes=max(peak - left, 0),
            oom_kills=kills,
            refused=self._refused(group),
        )
        if not self._recycle(group, left, reading):
            self._remove(group)
        return reading

    def close(self) -> None:
        """Remove all empty groups."""
        for group in (*self._free, *self._stuck):
            self._try_remove(group)
        self._free, self._stuck = [], []
        for tree in self._trees:
            os.close(tree.home)
            if tree.lock is not None:
                os.close(tree.lock)

    # --- counters ---

    def _path(self, controller: str, group: Group) -> str | None:
        tree = self._of.get(controller)
        return None if tree is None else f"{tree.hierarchy.directory}/{group.name}"

    def _cpu_ms(self, group: Group) -> int:
        if (path := self._path("cpuacct", group)) is not None:
            return _number(f"{path}/cpuacct.usage") // 1_000_000
        path = self._path("cpu", group)
        return 0 if path is None else _word(f"{path}/cpu.stat", b"usage_usec") // 1000

    def _processes(self, group: Group) -> int:
        path = self._path("pids", group)
        return 0 if path is None else _number(f"{path}/pids.current")

    def _refused(self, group: Group) -> int:
        path = self._path("pids", group)
        return 0 if path is None else _word(f"{path}/pids.events", b"max")

    def _working_set(self, path: str) -> int:
        if self._of["memory"].hierarchy.version == 1:
            used, idle = _number(f"{path}/memory.usage_in_bytes"), _word(f"{path}/memory.stat", b"total_inactive_file")
        else:
            used, idle = _number(f"{path}/memory.current"), _word(f"{path}/memory.stat", b"inactive_file")
        return max(used - idle, 0)

    def _kills(self, path: str) -> int:
        name = "memory.oom_control" if self._of["memory"].hierarchy.version == 1 else "memory.events"
        return _word(f"{path}/{name}", b"oom_kill")

    # --- using again ---

    def _recycle(self, group: Group, left: int, reading: GroupReading) -> bool:
        if not self._is_reusable or left > _LITTLE_LEFT_BYTES or reading.oom_kills or reading.refused:
            return False
        if len(self._free) >= _MOST_FREE or self._stuck:
            return False
        try:
            for tree in self._trees:
                if _read(f"{tree.hierarchy.directory}/{group.name}/cgroup.procs"):
                    return False  # something is still dying
            if (path := self._path("memory", group)) is not None:
                _write(f"{path}/memory.max_usage_in_bytes", b"0")
            if (path := self._path("cpuacct", group)) is not None:
                _write(f"{path}/cpuacct.usage", b"0")
        except OSError:
            return False
        self._free.append(group)
        return True

    def _remove(self, group: Group) -> None:
        if not self._try_remove(group):
            self._stuck.append(group)
        for stuck in self._stuck[:_STUCK_AT_A_TIME]:
            if self._try_remove(stuck):
                self._stuck.remove(stuck)

    def _try_remove(self, group: Group) -> bool:
        removed = [remove_group(f"{tree.hierarchy.directory}/{group.name}") for tree in self._trees]
        return all(removed)


def remove_group(path: str, kill: bool = False) -> bool:
    """Remove a group and its child groups; return False if a process in it does not exit.

    Args:
        path: The group's directory.
        kill: Kill the processes in it.
    """
    with contextlib.suppress(OSError):
        for entry in os.scandir(path):
            if entry.is_dir(follow_symlinks=False):
                remove_group(entry.path, kill)
    if kill:
        with contextlib.suppress(OSError, ValueError):
            for word in _read(f"{path}/cgroup.procs").split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(word), signal.SIGKILL)
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _READ_BYTES)
    finally:
        os.close(descriptor)


def _write(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


def _number(path: str) -> int:
    """Return the number in a file; 0 if there is none, as with older kernels."""
    try:
        return int(_read(path))
    except (OSError, ValueError):
        return 0


def _word(path: str, word: bytes) -> int:
    """Return the number after a word at the start of a line; 0 if there is none."""
    try:
        text = _read(path)
    except OSError:
        return 0
    for line in text.splitlines():
        name, _, number = line.partition(b" ")
        if name == word and number.strip().isdigit():
            return int(number)
    return 0
