"""The messages about limits in an attempt's log and errors. Pure."""

from typing import Final

from iris.domain.job_spec import MEMORY_WARNING
from iris.worker.limits.plan import DISK, MEMORY, PROCESSES, Breach
from rigging.text.quantities import format_size

_CURE: Final = {MEMORY: "--memory", DISK: "--disk"}


def out_of_memory(limit_bytes: int, peak_bytes: int, kills: int) -> Breach:
    """Return the message for an attempt whose processes the kernel killed for lack of memory.

    Args:
        limit_bytes: The attempt's limit; 0 if it had none and the host ran out of memory.
        peak_bytes: Its peak usage.
        kills: Number of killed processes.
    """
    whom = "one of its processes" if kills == 1 else f"{kills} of its processes"
    if not limit_bytes:
        return Breach(
            MEMORY,
            f"out of memory: the host's memory was full, and the kernel killed {whom}; peak {format_size(peak_bytes)}",
        )
    return Breach(
        MEMORY,
        f"out of memory: limit {format_size(limit_bytes)} (--memory), peak {format_size(peak_bytes)}; "
        f"the kernel killed {whom}",
    )


def beyond_soft(what: str, limit: int, used: int) -> Breach:
    """Return the message for an attempt that was killed because it exceeded a soft limit.

    Args:
        what: MEMORY, DISK or PROCESSES.
        limit: Bytes, or number of processes.
        used: The usage in the same unit.
    """
    if what == PROCESSES:
        return Breach(what, f"too many processes: limit {limit}, used {used}; the attempt was killed")
    lead = "out of memory" if what == MEMORY else "out of disk"
    where = "" if what == MEMORY else " in its working directory and TMPDIR"
    return Breach(
        what,
        f"{lead}: limit {format_size(limit)} ({_CURE[what]}), used {format_size(used)}{where}; the attempt was killed",
    )


def would_have_ended(placed_by: int, used: int) -> Breach:
    """Return the message for an attempt without a memory limit that uses more memory than the scheduler assumed.

    Args:
        placed_by: Bytes that the scheduler assumed.
        used: Bytes in use.
    """
    return Breach(
        MEMORY_WARNING,
        f"it uses {format_size(used)} of memory, but the scheduler assumed {format_size(placed_by)} without a request "
        "(--memory); a cluster with `limits: {unstated: enforce}` would have killed it",
    )


def beyond_share(share: int, used: int) -> Breach:
    """Return the message for an attempt that was killed because the disk was full and it exceeded its share the most.

    Args:
        share: Bytes of its share.
        used: Bytes that the attempt has written.
    """
    return Breach(
        DISK,
        f"out of disk: the host's disk was full, and the attempt had written the most: {format_size(used)}; its share "
        f"was {format_size(share)} (--disk reserves space); the attempt was killed",
    )


def processes_refused(limit: int, refused: int) -> Breach:
    """Return the message for an attempt that the kernel refused further processes.

    Args:
        limit: Maximum number of processes and threads.
        refused: Number of refusals.
    """
    times = "once" if refused == 1 else f"{refused} times"
    return Breach(PROCESSES, f"too many processes: limit {limit}; the kernel refused further processes {times}")
