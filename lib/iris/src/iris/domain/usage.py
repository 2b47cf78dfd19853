"""The use that one attempt has made of its host."""

from dataclasses import dataclass, fields
from typing import Final

from iris.domain.ids import WorkerId


@dataclass(frozen=True, slots=True)
class Usage:
    """Use of a host by an attempt: its processes together, those that have left its session included.

    Args:
        cpu_ms: Processor time since it began.
        cpu_millis: Thousandths of a core, lately; 0 once it has ended.
        memory_bytes: Held now, without what is only cached of files.
        memory_peak_bytes: The most that was seen.
        disk_bytes: In its working directory and TMPDIR, as last looked at.
        disk_peak_bytes: The most that was seen.
        processes: Processes and threads now.
        processes_peak: The most that was seen.
        at_ms: When (Unix time).
        began_at_ms: When the attempt began (Unix time), as the controller keeps it; 0: not known.
    """

    cpu_ms: int = 0
    cpu_millis: int = 0
    memory_bytes: int = 0
    memory_peak_bytes: int = 0
    disk_bytes: int = 0
    disk_peak_bytes: int = 0
    processes: int = 0
    processes_peak: int = 0
    at_ms: int = 0
    # In the order in which releases came to know them: so they are told, and older ones pass over what is at the end.
    began_at_ms: int = 0

    def later(self, now: "Usage") -> "Usage":
        """This, and what was seen after it: peaks and processor time never fall."""
        return Usage(
            cpu_ms=max(self.cpu_ms, now.cpu_ms),
            cpu_millis=now.cpu_millis,
            memory_bytes=now.memory_bytes,
            memory_peak_bytes=max(self.memory_peak_bytes, now.memory_peak_bytes, now.memory_bytes),
            disk_bytes=now.disk_bytes,
            disk_peak_bytes=max(self.disk_peak_bytes, now.disk_peak_bytes, now.disk_bytes),
            processes=now.processes,
            processes_peak=max(self.processes_peak, now.processes_peak, now.processes),
            at_ms=now.at_ms,
            began_at_ms=self.began_at_ms or now.began_at_ms,
        )

    def numbers(self) -> tuple[int, ...]:
        """All of it, in the order of the fields."""
        return tuple(getattr(self, name) for name in USAGE_FIELDS)


@dataclass(frozen=True, slots=True)
class AttemptUse:
    """The use of an attempt, and its worker."""

    worker_id: WorkerId
    usage: Usage


USAGE_FIELDS: Final = tuple(field.name for field in fields(Usage))
NO_USAGE: Final = Usage()


def usage_from(numbers: object) -> Usage:
    """The inverse of `Usage.numbers`. Numbers of later releases are passed over, and those not given are 0."""
    if not isinstance(numbers, list | tuple):
        return NO_USAGE
    return Usage(*(max(0, int(number)) for number in numbers[: len(USAGE_FIELDS)]))
