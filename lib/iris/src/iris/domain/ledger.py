"""The ledger: how the cluster's cores and accelerator chips spent their time."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

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
