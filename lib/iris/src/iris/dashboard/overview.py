"""The figures of the cluster's overview: capacity, what it was used for, waits. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from iris.dashboard.cluster_client import Row
from iris.rpc.generated import iris_pb2 as pb

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
USES: Final = {
    "productive": "good", "running": "busy", "lost": "bad", "environment": "warn", "restart": "warn",
    "waiting": "quiet", "reserved": "wait", "idle": "idle",
}  # fmt: skip
"""Classes of the ledger in the order of a column, each with its fill."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much of a resource the connected workers have.

    Attributes:
        name: The resource.
        unit: "bytes" or "".
        total: Amount on all connected workers.
        promised: Amount assigned to tasks.
        used: Amount used as measured; None if nobody measures it.
    """

    name: str
    unit: str
    total: float
    promised: float
    used: float | None


def capacities(workers: Iterable[pb.WorkerInfo]) -> list[Capacity]:
    """Return the capacity of the connected workers: cores, memory, and chips by kind of device."""
    there = [worker for worker in workers if worker.connected]
    found = [
        Capacity(
            "Cores",
            "",
            sum(worker.capacity.cpu_millis for worker in there) / 1000,
            sum(worker.committed.cpu_millis for worker in there) / 1000,
            sum(worker.used_cpu_millis for worker in there) / 1000,
        ),
        Capacity(
            "Memory",
            "bytes",
            sum(worker.capacity.memory_bytes for worker in there),
            sum(worker.committed.memory_bytes for worker in there),
            sum(worker.used_memory_bytes for worker in there),
        ),
    ]
    devices: dict[str, list[int]] = {}
    for worker in there:
        if worker.capacity.device.count:
            sums = devices.setdefault(worker.capacity.device.variant or worker.capacity.device.kind, [0, 0])
            sums[0] += worker.capacity.device.count
            sums[1] += worker.committed.device.count
    return found + [Capacity(f"{name} chips", "", total, held, None) for name, (total, held) in sorted(devices.items())]


@dataclass(frozen=True, slots=True)
class Column:
    """The use of one hour or day.

    Attributes:
        start_ms: Its start, Unix ms.
        x: Its place, in percent of the whole width.
        parts: Fill, and top and height in percent of the highest column.
        hours: Hours by class, in the order of `USES`.
    """

    start_ms: int
    x: float
    parts: tuple[tuple[str, float, float], ...]
    hours: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Columns:
    """Use over time.

    Attributes:
        columns: Those with any use, oldest first.
        width: Width of each, in percent.
        top: Hours of the highest column.
        totals: Hours by class, in the order of `USES`, without classes that nothing used.
    """

    columns: tuple[Column, ...]
    width: float
    top: float
    totals: tuple[tuple[str, float], ...]


def columns_of(rows: Sequence[Row], amount: str, begin_ms: int, step_ms: int, count: int) -> Columns:
    """Return rows of the ledger as columns over time.

    Args:
        rows: `start_ms`, `class` and amounts in seconds.
        amount: `core_seconds` or `chip_seconds`.
        begin_ms: Start of the first column.
        step_ms: Duration of a column.
        count: Number of columns.
    """
    hours: dict[int, dict[str, float]] = {}
    for row in rows:
        place = (row["start_ms"] - begin_ms) // step_ms
        if 0 <= place < count and row[amount]:
            column = hours.setdefault(place, {})
            column[row["class"]] = column.get(row["class"], 0.0) + row[amount] / 3600
    top = max((sum(column.values()) for column in hours.values()), default=0.0)
    columns = []
    for place, column in sorted(hours.items()):
        ordered = tuple((use, column[use]) for use in USES if use in column)
        parts, above = [], 100.0
        for use, value in ordered:
            height = 100 * value / top
            above -= height
            parts.append((USES[use], above, height))
        columns.append(Column(begin_ms + place * step_ms, 100 * place / count, tuple(parts), ordered))
    totals = ((use, sum(column.get(use, 0.0) for column in hours.values())) for use in USES)
    return Columns(tuple(columns), 100 / count, top, tuple(item for item in totals if item[1]))


def quantile(values: Sequence[float], share: float) -> float | None:
    """Return the value below which a share of the sorted values lies; None of none."""
    return values[min(int(share * len(values)), len(values) - 1)] if values else None
