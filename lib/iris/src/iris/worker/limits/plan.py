"""Determines the control group settings that enforce an attempt's limits. Pure: the host's state is passed as text."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from iris.domain.job_spec import MEMORY_WARNING
from iris.domain.resources import Resources

MEMORY: Final = "memory"
DISK: Final = "disk"
PROCESSES: Final = "processes"

_NO_LIMIT: Final = b"-1"
_PERIOD_US: Final = 100_000
_SHARES_PER_CORE: Final = 1024
_LEAST_SHARES: Final = 2
_MOST_SHARES: Final = 262_144
_LEAST_CPU_MILLIS: Final = 10
_MOST_PROCESSES: Final = 32_768


class LimitsMode(StrEnum):
    """Ways in which a worker enforces the limits of attempts."""

    AUTO = "auto"
    """With control groups if possible, otherwise as soft limits."""
    SOFT = "soft"
    """By measurements: an attempt over its limit is killed with a delay."""
    OFF = "off"
    """Not enforced."""


@dataclass(frozen=True, slots=True)
class LimitRequest:
    """Limits of one attempt; 0 for none.

    Args:
        memory_bytes: Memory of all its processes together.
        disk_bytes: Size of its working directory and TMPDIR.
        processes: Maximum number of processes and threads.
        cpu_millis: Its weight relative to other attempts when all cores are busy.
        cpu_quota: Whether `cpu_millis` is also a maximum, even on an idle host.
        memory_told: Memory in bytes above which its log gets a warning.
    """

    memory_bytes: int = 0
    disk_bytes: int = 0
    processes: int = 0
    cpu_millis: int = 0
    cpu_quota: bool = False
    memory_told: int = 0

    def words(self) -> dict[str, Any]:
        """Return the limits as JSON, without absent ones."""
        given = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in given.items() if value}


NO_LIMITS: Final = LimitRequest()


def limits_from(words: object) -> LimitRequest:
    """Return the limits from JSON, the inverse of `LimitRequest.words`; ignore unknown keys. Raises ValueError for a
    negative limit.
    """
    if not isinstance(words, Mapping):
        return NO_LIMITS
    names = ("memory_bytes", "disk_bytes", "processes", "cpu_millis", "memory_told")
    numbers = {name: int(words.get(name, 0)) for name in names}
    if min(numbers.values()) < 0:
        raise ValueError(f"a limit below 0: {dict(words)}")
    return LimitRequest(**numbers, cpu_quota=bool(words.get("cpu_quota", False)))


def requested_limits(resources: Resources, enforced: str) -> LimitRequest:
    """Return the limits of an attempt.

    Args:
        resources: The requested resources.
        enforced: The resources to enforce: see `JobSpec.enforced`.
    """
    words = enforced.split(",")
    return LimitRequest(
        memory_bytes=resources.memory_bytes if MEMORY in words else 0,
        disk_bytes=resources.disk_bytes if DISK in words else 0,
        cpu_millis=resources.cpu_millis,
        cpu_quota="cpu" in words and resources.cpu_millis > 0,
        memory_told=resources.memory_bytes if MEMORY_WARNING in words else 0,
    )


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One mounted tree of control groups, with this process's group in it.

    Args:
        version: 1 or 2.
        directory: Directory of this process's own group.
        controllers: The controllers of this tree. With version 2 only the tree itself lists them.
        is_root: Whether the group is the topmost visible one, as in a container.
    """

    version: int
    directory: str
    controllers: frozenset[str]
    is_root: bool = False


def hierarchies_of(own: str, mounts: str) -> list[Hierarchy]:
    """Return the trees in which this process has a visible group.

    Args:
        own: The content of /proc/self/cgroup.
        mounts: The content of /proc/self/mountinfo.
    """
    paths: dict[frozenset[str], str] = {}
    for line in own.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        paths[frozenset(names.split(",")) if names else frozenset()] = path
    found: dict[str, Hierarchy] = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        words, tail = before.split(" "), after.split(" ")
        if len(words) < 5 or len(tail) < 3 or tail[0] not in ("cgroup", "cgroup2"):
            continue
        root, mount = _unescaped(words[3]), _unescaped(words[4])
        options = frozenset(tail[2].split(","))
        version = 2 if tail[0] == "cgroup2" else 1
        group = next((group for group in paths if (group <= options if group else version == 2)), None)
        if group is None or (version == 2 and group):
            continue
        directory = _below(mount, root, paths[group])
        found.setdefault(directory, Hierarchy(version, directory, group, directory == mount))
    return list(found.values())


def _below(mount: str, root: str, path: str) -> str:
    """Return the path of the group `path` below a mount that shows the tree from `root` down."""
    if root != "/" and (path == root or path.startswith(f"{root}/")):
        path = path[len(root) :]
    return f"{mount}/{path.strip('/')}".rstrip("/")


def _unescaped(word: str) -> str:
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\134", "\\")):
        word = word.replace(octal, character)
    return word


WANTED: Final = {1: frozenset({"memory", "pids", "cpu", "cpuacct"}), 2: frozenset({"memory", "pids", "cpu"})}


def needed(hierarchies: Iterable[Hierarchy]) -> list[Hierarchy]:
    """Return the trees in which to create groups, each with the controllers to use."""
    return [
        Hierarchy(item.version, item.directory, used, item.is_root)
        for item in hierarchies
        if (used := item.controllers & WANTED[item.version])
    ]


Write = tuple[str, bytes]
"""A file's name in the group, and the content to write."""


def writes(
    version: int, controllers: frozenset[str], limits: LimitRequest, has_swap_account: bool = True
) -> list[Write]:
    """Return the writes, in order, that make a group of a tree enforce `limits`.

    The writes include "no limit", because groups are reused.

    Args:
        version: The version of control groups: 1 or 2.
        controllers: The controllers of the tree.
        limits: The attempt's limits.
        has_swap_account: Whether the kernel counts swap; if so, swap use is limited to zero.
    """
    return (_writes_v2 if version == 2 else _writes_v1)(controllers, limits, has_swap_account)


def _writes_v1(controllers: frozenset[str], limits: LimitRequest, has_swap_account: bool) -> list[Write]:
    found: list[Write] = []
    if "memory" in controllers:
        memory = b"%d" % limits.memory_bytes if limits.memory_bytes else _NO_LIMIT
        found.append(("memory.limit_in_bytes", memory))
        if has_swap_account:
            found.append(("memory.memsw.limit_in_bytes", memory))  # must not be below the other
    if "pids" in controllers:
        found.append(("pids.max", b"%d" % limits.processes if limits.processes else b"max"))
    if "cpu" in controllers:
        found.append(("cpu.shares", b"%d" % shares_of(limits.cpu_millis)))
        quota = b"%d" % (limits.cpu_millis * _PERIOD_US // 1000) if limits.cpu_quota else _NO_LIMIT
        found.append(("cpu.cfs_quota_us", quota))
    return found


def _writes_v2(controllers: frozenset[str], limits: LimitRequest, has_swap_account: bool) -> list[Write]:
    found: list[Write] = []
    if "memory" in controllers:
        found.append(("memory.max", b"%d" % limits.memory_bytes if limits.memory_bytes else b"max"))
        if has_swap_account:
            found.append(("memory.swap.max", b"0" if limits.memory_bytes else b"max"))
    if "pids" in controllers:
        found.append(("pids.max", b"%d" % limits.processes if limits.processes else b"max"))
    if "cpu" in controllers:
        # As other runtimes convert the one to the other.
        weight = 1 + (shares_of(limits.cpu_millis) - _LEAST_SHARES) * 9999 // (_MOST_SHARES - _LEAST_SHARES)
        found.append(("cpu.weight", b"%d" % weight))
        quota = b"%d" % (limits.cpu_millis * _PERIOD_US // 1000) if limits.cpu_quota else b"max"
        found.append(("cpu.max", quota + b" %d" % _PERIOD_US))
    return found


def shares_of(cpu_millis: int) -> int:
    """Return the cpu weight: 1024 per core, a small weight for an attempt without a cpu request."""
    shares = max(cpu_millis, _LEAST_CPU_MILLIS) * _SHARES_PER_CORE // 1000
    return min(max(shares, _LEAST_SHARES), _MOST_SHARES)


def most_processes(host_limits: Sequence[int]) -> int:
    """Return the default maximum of processes and threads per attempt, which leaves some for other attempts.

    Args:
        host_limits: Maximum numbers of processes of the host and of the worker's own group.
    """
    return min(min(host_limits, default=_MOST_PROCESSES) * 3 // 4, _MOST_PROCESSES)


@dataclass(frozen=True, slots=True)
class Breach:
    """The exceeded limit that explains an attempt's end or an event.

    Args:
        what: MEMORY, DISK or PROCESSES.
        text: A readable message with the limit and the usage.
    """

    what: str
    text: str


@dataclass(frozen=True, slots=True)
class GroupReading:
    """The counters of a group.

    Args:
        cpu_ms: Processor time.
        memory_bytes: Current usage, without reclaimable file cache.
        memory_peak_bytes: Peak usage, without the memory left when its processes have exited; 0 until then.
        processes: Current number of processes and threads.
        oom_kills: Number of out-of-memory kills.
        refused: Number of processes that the kernel refused to start.
    """

    cpu_ms: int = 0
    memory_bytes: int = 0
    memory_peak_bytes: int = 0
    processes: int = 0
    oom_kills: int = 0
    refused: int = 0
