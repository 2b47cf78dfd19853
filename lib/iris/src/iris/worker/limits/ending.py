"""Explains an attempt's end by its limits, from the counters of that attempt alone. Pure."""

from iris.domain.usage import Usage
from iris.worker.limits.breach import out_of_memory, processes_refused
from iris.worker.limits.plan import Breach, GroupReading, LimitRequest


def breach_of(limits: LimitRequest, reading: GroupReading, peak_bytes: int) -> Breach | None:
    """The limit that a bad end is to be explained by; None when none was met.

    Args:
        limits: Of the attempt.
        reading: The last one of its group.
        peak_bytes: The most memory that it used.
    """
    if reading.oom_kills:
        return out_of_memory(limits.memory_bytes, peak_bytes, reading.oom_kills)
    if reading.refused:
        return processes_refused(limits.processes, reading.refused)
    return None


def final_usage(before: Usage, reading: GroupReading | None, cpu_ms: int, leader_peak_bytes: int, at_ms: int) -> Usage:
    """Return the whole use of an attempt whose processes are gone.

    Args:
        before: As it was seen while it ran.
        reading: The last one of its group; None: it had none.
        cpu_ms: Of the command and the children that it has waited for.
        leader_peak_bytes: The most that one of these held.
        at_ms: Now (Unix time).
    """
    counted = reading if reading is not None else GroupReading()
    return before.later(
        Usage(
            cpu_ms=max(cpu_ms, counted.cpu_ms),
            memory_peak_bytes=max(leader_peak_bytes, counted.memory_peak_bytes),
            disk_bytes=before.disk_bytes,
            at_ms=at_ms,
        )
    )
