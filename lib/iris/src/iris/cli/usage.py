"""Shows the resource use of attempts."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rigging.text.quantities import format_size

if TYPE_CHECKING:
    from iris.client import AttemptUsage, TaskStatus


def size(count: int) -> str:
    """Return bytes with a unit; "-" if unknown."""
    return format_size(count) if count else "-"


def processor_time(seconds: float) -> str:
    """Return processor time of one core: "0.2 s", "12 min", "3.5 h"."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def latest(task: "TaskStatus") -> "AttemptUsage | None":
    """Return the use of the task's current or last attempt; None if unknown."""
    found = [item for item in task.usage if item.attempt_id.rpartition(":")[2] == str(task.attempt)]
    return found[0] if found else None


def totals(tasks: Iterable["TaskStatus"]) -> str:
    """Return the total use of all attempts of a job, and the peak of a single attempt; empty if unknown."""
    found = [item for task in tasks for item in task.usage]
    if not found:
        return ""
    parts = [f"cpu {processor_time(sum(item.cpu_seconds for item in found))}"]
    memory = max(item.memory_peak_bytes for item in found)
    disk = max(item.disk_peak_bytes for item in found)
    parts += [f"memory up to {format_size(memory)}"] if memory else []
    parts += [f"disk up to {format_size(disk)}"] if disk else []
    return ", ".join(parts)
