"""The limits of a process's control groups."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

CGROUP_ROOT: Final = Path("/sys/fs/cgroup")
OWN_CGROUPS: Final = Path("/proc/self/cgroup")
_NO_LIMIT_BYTES: Final = 1 << 60


def cgroup_limits(root: Path, own: str) -> tuple[int | None, int | None]:
    """Return the (cpu millicores, memory bytes) that control groups allow; None for no limit.

    Args:
        root: The mount point of the cgroup filesystems.
        own: The content of /proc/self/cgroup. Versions 1 and 2 are supported.
    """
    cpu: list[int] = []
    memory: list[int] = []
    for line in own.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            for directory in _up(root, path):
                cpu += _quota(_words(directory / "cpu.max"))
                memory += _bytes(_words(directory / "memory.max"))
        elif "memory" in controllers.split(","):
            for directory in _up(root / "memory", path):
                memory += _bytes(_words(directory / "memory.limit_in_bytes"))
        elif "cpu" in controllers.split(","):
            for directory in _up(root / "cpu", path):
                words = _words(directory / "cpu.cfs_quota_us") + _words(directory / "cpu.cfs_period_us")
                cpu += _quota(words)
    return min(cpu, default=None), min(memory, default=None)


def _up(root: Path, path: str) -> Iterator[Path]:
    """Return the group's directory and its parents, because a limit on any of them applies."""
    directory = root / path.lstrip("/")
    yield directory
    while directory != root and root in directory.parents:
        directory = directory.parent
        yield directory


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []  # not limited at this level, or not ours to see


def _quota(words: list[str]) -> list[int]:
    if len(words) != 2 or not words[0].isdigit() or not words[1].isdigit() or words[1] == "0":
        return []  # "max", or -1 in version 1
    return [int(words[0]) * 1000 // int(words[1])]


def _bytes(words: list[str]) -> list[int]:
    # Version 1 writes "no limit" as a huge number.
    return [int(word) for word in words[:1] if word.isdigit() and int(word) < _NO_LIMIT_BYTES]
