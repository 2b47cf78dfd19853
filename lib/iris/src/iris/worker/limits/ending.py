"""Determines from an attempt's counters which limit ended it. Pure."""

from iris.domain.usage import Usage
from iris.worker.limits.breach import out_of_memory, processes_refused
from iris.worker.limits.plan import Breach, GroupReading, LimitRequest


def breach_of(limits: LimitRequest, reading: GroupReading, peak_bytes: int) -> Breach | None:
    """Return the limit that explains a failed end; None if no limit was reached.

    Args:
        limits: The attempt's limits.
        reading: The last reading of its group.
        peak_bytes: Its peak memory usage.
    """
    if reading.oom_kills:
        return out_of_memory(limits.memory_bytes, peak_bytes, reading.oom_kills)
    if reading.refused:
        return processes_refused(limits.processes, reading.refused)
    return None


def final_usage(before: Usage, reading: GroupReading | None, cpu_ms: int, leader_peak_bytes: int, at_ms: int) -> Usage:
    """Return the total usage of an attempt whose processes are gone.

    Args:
        before: Its last measurement while it ran.
        reading: The last reading of its group, or None.
        cpu_ms: Processor time of the command and its reaped children.
        leader_peak_bytes: Peak memory of the largest of these processes.
        at_ms: Current time (Unix ms).
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
