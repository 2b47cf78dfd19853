"""The kernel's counts of processes that it killed for lack of memory."""

from collections.abc import Iterable
from pathlib import Path


class OomKills:
    """The kernel's count of processes killed for lack of memory; each is claimed by at most one attempt.

    Args:
        files: Files with the counters of the worker's control groups and of the machine; see `oom_counters`.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = [path for path in files if _count(path) is not None]
        self._seen = {path: _count(path) or 0 for path in self._files}

    def claim(self) -> bool:
        """Return whether the kernel has killed a process that no attempt has claimed yet."""
        risen = [path for path in self._files if (_count(path) or 0) > self._seen[path]]
        for path in risen:
            # One kill shows in the group's counter and in those around it.
            self._seen[path] += 1
        return bool(risen)


def machine_kills(vmstat: Path = Path("/proc/vmstat")) -> int | None:
    """Return how many processes the kernel of this machine has killed for lack of memory; None if it does not tell."""
    return _count(vmstat)


def oom_counters(root: Path, own: str) -> list[Path]:
    """Return the files in which the kernel counts its kills.

    Args:
        root: Where the cgroup filesystems are mounted.
        own: The content of /proc/self/cgroup; versions 1 and 2.
    """
    found: list[Path] = []
    for line in own.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            found.append(root / path.lstrip("/") / "memory.events")
        elif "memory" in controllers.split(","):
            found.append(root / "memory" / path.lstrip("/") / "memory.oom_control")
    return found


def _count(path: Path) -> int | None:
    """Return the number after the word oom_kill; None if it cannot be read."""
    try:
        text = path.read_text()
    except OSError:
        return None
    for line in text.splitlines():
        word, _, number = line.partition(" ")
        if word == "oom_kill" and number.strip().isdigit():
            return int(number)
    return None
