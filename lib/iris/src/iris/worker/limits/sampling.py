"""When to look at what of an attempt, and what the looks mean. Pure: moments and numbers come as arguments."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from iris.domain.usage import Usage
from iris.worker.limits.breach import beyond_soft, out_of_memory, processes_refused
from iris.worker.limits.plan import DISK, MEMORY, PROCESSES, Breach, GroupReading, LimitRequest
from iris.worker.limits.processes import Tally

USAGE_S: Final = 5.0
"""So often everything is measured."""
SOFT_S: Final = 1.0
"""So often memory and processes are measured that are limited softly."""
DISK_TICK_S: Final = 0.25
"""So often the file system is asked how much is free, while an attempt's disk is limited."""
DISK_S: Final = 2.0
"""So often an attempt's directories are looked through when its disk is limited; otherwise:"""
DISK_UNLIMITED_S: Final = 30.0
DELETED_S: Final = 10.0
"""So often deleted files are looked for, which takes a look at each descriptor; and whenever much was written."""
ROOM_S: Final = 1.0
"""So often the file system is asked how much is free, while no attempt's disk is limited."""
ROOM_PAUSE_S: Final = 30.0
"""So long the files of an attempt that was ended for room may take to go, before another is."""
_FULL_BYTES: Final = 64 * 1024 * 1024
_FULL_SHARE: Final = 50
_DISK_PAUSE: Final = 100
"""After a look through the directories, so many times what it took goes by before the next."""


def usage_of(
    before: Usage,
    reading: GroupReading | None,
    seen: Tally | None,
    counted: frozenset[str],
    at_ms: int,
) -> Usage:
    """Return the present use of an attempt.

    Args:
        before: As it was last seen; its disk is what it was.
        reading: Of its control groups; None: it has none.
        seen: Its processes, where control groups do not count everything; None: they do, or it has none.
        counted: The controllers by which groups count.
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
    """The limit that an attempt exceeds and the kernel does not hold it to; None: it exceeds none.

    Args:
        limits: What it may use.
        usage: What it uses.
        counted: Controllers by which the kernel holds it.
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
    """True if a file system has less than 64 MiB left, and less than a fiftieth of its size."""
    return free_bytes < min(_FULL_BYTES, size_bytes // _FULL_SHARE)


def one_to_end(used: Mapping[str, int], limits: Mapping[str, int], free_bytes: int) -> tuple[str, int] | None:
    """Return who is to end on a full disk, and what its share was: who has written most of those beyond their share.

    What others than attempts have left of the disk belongs to the attempts: to each that named its `--disk` so much,
    to the others equal shares of the rest. One that is alone has all of it. None: nobody is beyond its share.

    Args:
        used: Bytes of each attempt.
        limits: Of those that are limited, all of them within their limits.
        free_bytes: That are free.
    """
    others = {name: count for name, count in used.items() if name not in limits}
    if not others:
        return None
    largest = max(others, key=others.__getitem__)
    share = max(sum(used.values()) + free_bytes - sum(limits.values()), 0) // len(others)
    return (largest, share) if others[largest] > share else None


def hurt(limits: LimitRequest, reading: GroupReading, peak_bytes: int) -> list[Breach]:
    """Return the limit that a running attempt has met, by the kernel's counts; it may go on all the same.

    Args:
        limits: What it may use.
        reading: The kernel's counts.
        peak_bytes: The most memory that it had.
    """
    found = []
    if reading.oom_kills:
        found.append(out_of_memory(limits.memory_bytes, max(peak_bytes, reading.memory_bytes), reading.oom_kills))
    if reading.refused:
        found.append(processes_refused(limits.processes, reading.refused))
    return found


@dataclass(slots=True)
class DiskSchedule:
    """When to look through the directories of one attempt.

    Args:
        limit_bytes: 0: none.
        due: Moment of the next look (monotonic clock, s).
        free_bytes: Of the file system at the last look; 0: not known.
        total_bytes: That the last look has found.
        deleted_due: Moment of the next look for deleted files that are open.
        deleted_bytes: What the last one has found.
        looked_at: Moment of the last look; 0: there was none.
    """

    limit_bytes: int
    due: float = 0.0
    free_bytes: int = 0
    total_bytes: int = 0
    deleted_due: float = 0.0
    deleted_bytes: int = 0
    looked_at: float = 0.0

    def hurry(self) -> None:
        """Let the next look, for deleted files as well, be due at once."""
        self.due = self.deleted_due = 0.0

    def is_due(self, now: float, free_bytes: int) -> bool:
        """Whether it is time: sooner, when the file system has lost half of what the attempt may still write.

        Args:
            now: This moment.
            free_bytes: That are free on the file system.
        """
        return now >= self.due or self._much_is_gone(free_bytes)

    def is_due_for_deleted(self, now: float, free_bytes: int) -> bool:
        """Whether the look that is due is to look for deleted files, too; arguments as of `is_due`."""
        return now >= self.deleted_due or self._much_is_gone(free_bytes)

    def _much_is_gone(self, free_bytes: int) -> bool:
        left = max(self.limit_bytes - self.total_bytes, 0)
        return bool(self.limit_bytes) and self.free_bytes - free_bytes > left // 2

    def looked_for_deleted(self, now: float, deleted_bytes: int) -> None:
        """A look for deleted files is over.

        Args:
            now: This moment.
            deleted_bytes: That it has found.
        """
        self.deleted_bytes, self.deleted_due = deleted_bytes, now + DELETED_S

    def looked(self, now: float, took_s: float, total_bytes: int, free_bytes: int) -> None:
        """A look is over.

        Args:
            now: This moment.
            took_s: Processor time of the look.
            total_bytes: That it has found.
            free_bytes: That are free on the file system.
        """
        self.total_bytes, self.free_bytes, self.looked_at = total_bytes, free_bytes, now
        self.due = now + max(DISK_S if self.limit_bytes else DISK_UNLIMITED_S, took_s * _DISK_PAUSE)


def soft_line(why: str) -> str:
    """The line at the start of the log of an attempt whose memory is limited softly; "" when it is not.

    Args:
        why: Why it is limited so; empty: it is not.
    """
    if not why:
        return ""
    return f"limits are soft here: memory is looked at every {SOFT_S:g} s, what exceeds is ended a little late ({why})"
