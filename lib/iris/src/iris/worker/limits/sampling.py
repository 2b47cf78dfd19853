"""Decides when to measure an attempt, and evaluates the measurements. Pure: times and values are arguments."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from iris.domain.usage import Usage
from iris.worker.limits.breach import beyond_soft, out_of_memory, processes_refused
from iris.worker.limits.plan import DISK, MEMORY, PROCESSES, Breach, GroupReading, LimitRequest
from iris.worker.limits.processes import Tally

USAGE_S: Final = 5.0
"""Interval between complete measurements."""
SOFT_S: Final = 1.0
"""Interval between measurements for soft memory and process limits."""
DISK_TICK_S: Final = 0.25
"""Interval between checks of the file system's free space, while an attempt's disk is limited."""
DISK_S: Final = 2.0
"""Interval between scans of an attempt's directories if its disk is limited."""
DISK_UNLIMITED_S: Final = 30.0
DELETED_S: Final = 10.0
"""Interval between scans for deleted files, which visit each descriptor; a large write makes one due earlier."""
ROOM_S: Final = 1.0
"""Interval between checks of the file system's free space, while no attempt's disk is limited."""
ROOM_PAUSE_S: Final = 30.0
"""How long to wait, after killing an attempt to free disk space, for the removal of its files before killing
another.
"""
_FULL_BYTES: Final = 64 * 1024 * 1024
_FULL_SHARE: Final = 50
_DISK_PAUSE: Final = 100
"""The pause after a scan of the directories, as a multiple of its duration."""


def usage_of(
    before: Usage,
    reading: GroupReading | None,
    seen: Tally | None,
    counted: frozenset[str],
    at_ms: int,
) -> Usage:
    """Return the current usage of an attempt.

    Args:
        before: Its last measurement, the source of its disk usage.
        reading: The reading of its control groups, or None.
        seen: The tally of its processes, if control groups do not count everything; otherwise None.
        counted: The controllers that count usage.
        at_ms: Unix time.
    """
    reading, seen = reading or GroupReading(), seen or Tally()
    cpu_ms = reading.cpu_ms if counted & {"cpu", "cpuacct"} else seen.cpu_ms
    elapsed_ms = at_ms - before.at_ms
    recent = max(cpu_ms - before.cpu_ms, 0) * 1000 // elapsed_ms if before.at_ms and elapsed_ms > 0 else 0
    return Usage(
        cpu_ms=cpu_ms,
        cpu_millis=recent,
        memory_bytes=reading.memory_bytes if "memory" in counted else seen.memory_bytes,
        disk_bytes=before.disk_bytes,
        processes=reading.processes if "pids" in counted else seen.processes,
        at_ms=at_ms,
    )


def soft_breach(limits: LimitRequest, usage: Usage, counted: frozenset[str]) -> Breach | None:
    """Return the limit that an attempt exceeds without enforcement by the kernel, or None.

    Args:
        limits: Its limits.
        usage: Its usage.
        counted: The controllers that enforce limits.
    """
    if limits.memory_bytes and "memory" not in counted and usage.memory_bytes > limits.memory_bytes:
        return beyond_soft(MEMORY, limits.memory_bytes, usage.memory_bytes)
    if limits.processes and "pids" not in counted and usage.processes > limits.processes:
        return beyond_soft(PROCESSES, limits.processes, usage.processes)
    return disk_breach(limits, usage.disk_bytes)


def disk_breach(limits: LimitRequest, disk_bytes: int) -> Breach | None:
    """Like `soft_breach`, for the disk only."""
    if limits.disk_bytes and disk_bytes > limits.disk_bytes:
        return beyond_soft(DISK, limits.disk_bytes, disk_bytes)
    return None


def is_full(free_bytes: int, size_bytes: int) -> bool:
    """Return whether less than 64 MiB and less than 2% of a file system are free."""
    return free_bytes < min(_FULL_BYTES, size_bytes // _FULL_SHARE)


def one_to_end(used: Mapping[str, int], limits: Mapping[str, int], free_bytes: int) -> tuple[str, int] | None:
    """Return the attempt to kill on a full disk, and its share: among attempts over their share, the one that has
    written most.

    The shares divide the free bytes and those used by attempts. An attempt with `--disk` gets that amount; the others
    get equal parts of the rest. A single attempt gets all. None if no attempt exceeds its share.

    Args:
        used: Bytes used by each attempt.
        limits: Limits of the limited attempts; none exceeds its limit.
        free_bytes: Free bytes.
    """
    others = {name: count for name, count in used.items() if name not in limits}
    if not others:
        return None
    largest = max(others, key=others.__getitem__)
    share = max(sum(used.values()) + free_bytes - sum(limits.values()), 0) // len(others)
    return (largest, share) if others[largest] > share else None


def hurt(limits: LimitRequest, reading: GroupReading, peak_bytes: int) -> list[Breach]:
    """Return the limit that a running attempt has reached according to the kernel's counters; the attempt may continue.

    Args:
        limits: Its limits.
        reading: The kernel's counters.
        peak_bytes: Its peak memory usage.
    """
    found = []
    if reading.oom_kills:
        found.append(out_of_memory(limits.memory_bytes, max(peak_bytes, reading.memory_bytes), reading.oom_kills))
    if reading.refused:
        found.append(processes_refused(limits.processes, reading.refused))
    return found


@dataclass(slots=True)
class DiskSchedule:
    """Decides when to scan the directories of one attempt.

    Args:
        limit_bytes: 0 for none.
        due: Time of the next scan (monotonic clock, s).
        free_bytes: Free bytes of the file system at the last scan; 0 if unknown.
        total_bytes: Result of the last scan.
        deleted_due: Time of the next scan for deleted open files.
        deleted_bytes: Result of the last scan for deleted files.
        looked_at: Time of the last scan; 0 before the first.
    """

    limit_bytes: int
    due: float = 0.0
    free_bytes: int = 0
    total_bytes: int = 0
    deleted_due: float = 0.0
    deleted_bytes: int = 0
    looked_at: float = 0.0

    def hurry(self) -> None:
        """Make the next scan, including that for deleted files, due at once."""
        self.due = self.deleted_due = 0.0

    def is_due(self, now: float, free_bytes: int) -> bool:
        """Return whether a scan is due: earlier if the free space has shrunk by half of the attempt's remaining limit.

        Args:
            now: The current time.
            free_bytes: Free bytes of the file system.
        """
        return now >= self.due or self._much_is_gone(free_bytes)

    def is_due_for_deleted(self, now: float, free_bytes: int) -> bool:
        """Return whether the due scan includes deleted files; arguments as in `is_due`."""
        return now >= self.deleted_due or self._much_is_gone(free_bytes)

    def _much_is_gone(self, free_bytes: int) -> bool:
        left = max(self.limit_bytes - self.total_bytes, 0)
        return bool(self.limit_bytes) and self.free_bytes - free_bytes > left // 2

    def looked_for_deleted(self, now: float, deleted_bytes: int) -> None:
        """Record the end of a scan for deleted files.

        Args:
            now: The current time.
            deleted_bytes: The scan's result.
        """
        self.deleted_bytes, self.deleted_due = deleted_bytes, now + DELETED_S

    def looked(self, now: float, took_s: float, total_bytes: int, free_bytes: int) -> None:
        """Record the end of a scan.

        Args:
            now: The current time.
            took_s: Processor time of the scan.
            total_bytes: The scan's result.
            free_bytes: Free bytes of the file system.
        """
        self.total_bytes, self.free_bytes, self.looked_at = total_bytes, free_bytes, now
        self.due = now + max(DISK_S if self.limit_bytes else DISK_UNLIMITED_S, took_s * _DISK_PAUSE)


def soft_line(why: str) -> str:
    """Return the line at the start of the log of an attempt with a soft memory limit; "" for others.

    Args:
        why: Why its limit is soft; empty for a hard limit.
    """
    if not why:
        return ""
    return f"soft limits: memory is measured every {SOFT_S:g} s, and an attempt over its limit is killed late ({why})"
