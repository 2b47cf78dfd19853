"""Processor time and context switches of a local cluster's processes, from /proc."""

import os
from dataclasses import dataclass
from pathlib import Path

_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """The usage of a process and its threads. `children` includes only children that ended and were reaped.

    Times are in ms: exact for the process (from the scheduler), in kernel ticks for its children.
    """

    own_ms: float
    children_ms: float
    switches: int

    def minus(self, other: "Usage") -> "Usage":
        return Usage(self.own_ms - other.own_ms, self.children_ms - other.children_ms, self.switches - other.switches)


def processes_of(state_dir: str) -> dict[str, int]:
    """Return the cluster's processes by part (controller, worker, guardian), found by the directory in their command
    lines."""
    found: dict[str, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if not any(state_dir in word for word in words):
            continue
        for part in ("controller", "worker", "guardian"):
            if part in words or any(word.endswith(f".{part}") for word in words):
                found[part] = int(entry.name)
    return found


def usage_of(pid: int) -> Usage:
    """Return the usage of a process so far."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own_ms, switches = 0.0, 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            own_ms += int((task / "schedstat").read_text().split()[0]) / 1e6
            for line in (task / "status").read_text().splitlines():
                if "ctxt_switches" in line:
                    switches += int(line.split()[1])
        except OSError:
            continue  # a thread that has just ended
    return Usage(own_ms, (int(stat[13]) + int(stat[14])) * _TICK_MS, switches)


def descendants_ms() -> float:
    """Return the processor time of this process and its living descendants, in ms (from ticks)."""
    children: dict[int, list[int]] = {}
    spent: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        children.setdefault(int(stat[1]), []).append(int(entry.name))
        spent[int(entry.name)] = sum(map(int, stat[11:15])) * _TICK_MS
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, [])
    return sum(spent.get(pid, 0.0) for pid in found)


class Meter:
    """Measures the cluster at `state_dir` and this process from now on."""

    def __init__(self, state_dir: str) -> None:
        self._pids = {**processes_of(state_dir), "client": os.getpid()}
        self._before = {part: usage_of(pid) for part, pid in self._pids.items()}

    def per_item(self, count: int) -> dict[str, float]:
        """Return processor time in ms and context switches per item, by part and in total."""
        spent = {part: usage_of(pid).minus(self._before[part]) for part, pid in self._pids.items()}
        report = {f"{part}_ms": round(use.own_ms / count, 3) for part, use in spent.items()}
        report["tasks_ms"] = round(sum(use.children_ms for use in spent.values()) / count, 3)
        report["total_ms"] = round(sum(use.own_ms + use.children_ms for use in spent.values()) / count, 3)
        report["switches"] = round(sum(use.switches for use in spent.values()) / count, 1)
        return report
