"""Decides which files of which control groups hold an attempt to its limits. Pure: what a host has comes as text."""

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
    """How a worker holds attempts to what they asked for."""

    AUTO = "auto"
    """By control groups where they can be made, else softly."""
    SOFT = "soft"
    """By looking at them: what exceeds is ended, a little late."""
    OFF = "off"
    """Not at all."""


@dataclass(frozen=True, slots=True)
class LimitRequest:
    """Limits of one attempt; 0: none.

    Args:
        memory_bytes: Of all its processes together.
        disk_bytes: Of its working directory and TMPDIR.
        processes: Processes and threads.
        cpu_millis: Its share when the host's cores are all busy: by this weight against others'.
        cpu_quota: It gets no more than `cpu_millis`, even of an idle host.
        memory_told: Beyond so many bytes of memory it is told that a limit would have ended it; it goes on.
    """

    memory_bytes: int = 0
    disk_bytes: int = 0
    processes: int = 0
    cpu_millis: int = 0
    cpu_quota: bool = False
    memory_told: int = 0

    def words(self) -> dict[str, Any]:
        """For JSON; what is not limited is left out."""
        given = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in given.items() if value}


NO_LIMITS: Final = LimitRequest()


def limits_from(words: object) -> LimitRequest:
    """The inverse of `LimitRequest.words`; what is not known is passed over. Raises ValueError for a negative limit."""
    if not isinstance(words, Mapping):
        return NO_LIMITS
    names = ("memory_bytes", "disk_bytes", "processes", "cpu_millis", "memory_told")
    numbers = {name: int(words.get(name, 0)) for name in names}
    if min(numbers.values()) < 0:
        raise ValueError(f"a limit below 0: {dict(words)}")
    return LimitRequest(**numbers, cpu_quota=bool(words.get("cpu_quota", False)))


def requested_limits(resources: Resources, enforced: str) -> LimitRequest:
    """The limits of an attempt.

    Args:
        resources: That it asked for.
        enforced: Those that it is held to: see `JobSpec.enforced`.
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
    """One mounted tree of control groups, and this process's group in it.

    Args:
        version: 1 or 2.
        directory: Of this process's own group.
        controllers: Those of this tree. Version 2 says only in the tree itself what it has.
        is_root: The group is the topmost that can be seen, as in a container.
    """

    version: int
    directory: str
    controllers: frozenset[str]
    is_root: bool = False


def hierarchies_of(own: str, mounts: str) -> list[Hierarchy]:
    """The trees in which this process has a group that it can see.

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
    """Where the group `path` is, in a mount that shows the tree from `root` down."""
    if root != "/" and (path == root or path.startswith(f"{root}/")):
        path = path[len(root) :]
    return f"{mount}/{path.strip('/')}".rstrip("/")


def _unescaped(word: str) -> str:
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\134", "\\")):
        word = word.replace(octal, character)
    return word


WANTED: Final = {1: frozenset({"memory", "pids", "cpu", "cpuacct"}), 2: frozenset({"memory", "pids", "cpu"})}


def needed(hierarchies: Iterable[Hierarchy]) -> list[Hierarchy]:
    """The trees to make groups in: each with the controllers that are used of it, those that have none left out."""
    return [
        Hierarchy(item.version, item.directory, used, item.is_root)
        for item in hierarchies
        if (used := item.controllers & WANTED[item.version])
    ]


Write = tuple[str, bytes]
"""The name of a file of a group, and its content."""


def writes(
    version: int, controllers: frozenset[str], limits: LimitRequest, has_swap_account: bool = True
) -> list[Write]:
    """Return the writes by which a group of a tree holds its processes to `limits`, in their order.

    Every value is written, "no limit" as well, because groups are used again.

    Args:
        version: Of control groups: 1 or 2.
        controllers: That the tree has.
        limits: Of the attempt.
        has_swap_account: Whether the kernel counts swap; then none may be used beyond the limit.
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
    """The weight of so much cpu: 1024 a core. An attempt that asked for none gets a little, too."""
    shares = max(cpu_millis, _LEAST_CPU_MILLIS) * _SHARES_PER_CORE // 1000
    return min(max(shares, _LEAST_SHARES), _MOST_SHARES)


def most_processes(host_limits: Sequence[int]) -> int:
    """How many processes and threads one attempt may have by default: so many that another can still start some.

    Args:
        host_limits: Numbers of processes that the host, or the worker's own group, allows.
    """
    return min(min(host_limits, default=_MOST_PROCESSES) * 3 // 4, _MOST_PROCESSES)


@dataclass(frozen=True, slots=True)
class Breach:
    """An attempt's limit that its end, or what it met, is to be explained by.

    Args:
        what: MEMORY, DISK or PROCESSES.
        text: For people, with the limit and what was used.
    """

    what: str
    text: str


@dataclass(frozen=True, slots=True)
class GroupReading:
    """The counters of a group.

    Args:
        cpu_ms: Processor time.
        memory_bytes: Held now, without what is only cached of files and not in use.
        memory_peak_bytes: The most that was charged to it at a time, without what is left when its processes are gone;
            0 before that.
        processes: Processes and threads now.
        oom_kills: How many of its processes the kernel has killed for lack of memory.
        refused: How often the kernel refused it another process.
    """

    cpu_ms: int = 0
    memory_bytes: int = 0
    memory_peak_bytes: int = 0
    processes: int = 0
    oom_kills: int = 0
    refused: int = 0
