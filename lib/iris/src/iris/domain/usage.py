"""The resource use of one attempt, and the ledger: how the cluster's cores and chips spent their time."""

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Final, NamedTuple

from iris.domain.ids import WorkerId


@dataclass(frozen=True, slots=True)
class Usage:
    """The resource use of an attempt: all its processes, including those that left its session.

    Args:
        cpu_ms: Total processor time.
        cpu_millis: Recent CPU use in thousandths of a core; 0 after the attempt's end.
        memory_bytes: Current memory without the page cache.
        memory_peak_bytes: The highest observed value.
        disk_bytes: Size of its working directory and TMPDIR at the last measurement.
        disk_peak_bytes: The highest observed value.
        processes: Current number of processes and threads.
        processes_peak: The highest observed value.
        at_ms: Time of the measurement (Unix time).
        began_at_ms: Start of the attempt (Unix ms) on the controller's clock; 0 if unknown.
        memory_mean_bytes: Average memory of its life, from the controller; 0 if unknown.
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
    memory_mean_bytes: int = 0

    def later(self, now: "Usage") -> "Usage":
        """Return this use merged with a later one. Peaks and processor time never decrease."""
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
            memory_mean_bytes=now.memory_mean_bytes or self.memory_mean_bytes,
        )

    def numbers(self) -> tuple[int, ...]:
        """Return all values in the order of the fields."""
        return tuple(getattr(self, name) for name in USAGE_FIELDS)


@dataclass(frozen=True, slots=True)
class AttemptUse:
    """The use of an attempt, and its worker."""

    worker_id: WorkerId
    usage: Usage


USAGE_FIELDS: Final = tuple(field.name for field in fields(Usage))
NO_USAGE: Final = Usage()


def usage_from(numbers: object) -> Usage:
    """Return the usage from the result of `Usage.numbers`. Ignores extra numbers of later releases; missing numbers are
    0.
    """
    if not isinstance(numbers, list | tuple):
        return NO_USAGE
    return Usage(*(max(0, int(number)) for number in numbers[: len(USAGE_FIELDS)]))


HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS


class Use(IntEnum):
    """The classes of time. Their numbers are positions in `LedgerRow`."""

    PRODUCTIVE = 0  # attempts that succeeded
    ENVIRONMENT = 1  # from the placement of a task's first attempt to its start
    WAITING = 2  # attempts that wait for their children, without the cores that others used meanwhile
    RESTART = 3  # from the placement of a further attempt to its start; stops before one
    LOST = 4  # attempts without a result
    IDLE = 5  # on connected workers, used by nobody
    RESERVED = 6  # kept free for a job
    RUNNING = 7  # not decided yet: attempts that run


class Owner(NamedTuple):
    """Who used a group's capacity.

    Args:
        user: Empty for nobody.
        job: The root job or its direct child, including descendants; empty for small jobs and for nobody.
        group: The scale group of the workers, or else their device.
    """

    user: str
    job: str
    group: str


@dataclass(frozen=True, slots=True)
class Price:
    """The prices of a group's hours; 0 for unknown. A chip's price includes its host's cores if these have none."""

    core_hour: float = 0.0
    chip_hour: float = 0.0


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """The time of one owner in one hour or day.

    Args:
        start_ms: Start of the hour or day (Unix ms).
        core_ms: Core-milliseconds by `Use`. chip_ms: Chip-milliseconds by `Use`.
        counted_ms: The end of the counted time (Unix ms).
    """

    start_ms: int
    owner: Owner
    core_ms: tuple[int, ...]
    chip_ms: tuple[int, ...]
    counted_ms: int
    price: Price = Price()
