"""The law of the ledger: on every worker, the uses add up to its capacity, whatever happens."""

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from iris.core.state.view import ClusterView
from iris.domain.ids import WorkerId
from iris.domain.usage import Use
from iris.store.db import DATABASE_NAME

Counted = Mapping[str, tuple[int, int]]
Offered = dict[WorkerId, tuple[float, float]]
"""Core-ms and chip-ms of each worker."""


class Capacity:
    """Integrates each worker's capacity over time, from nothing but its record and its load."""

    def __init__(self) -> None:
        self.offered: Offered = defaultdict(lambda: (0.0, 0.0))
        self._rates: dict[WorkerId, tuple[float, float]] = {}
        self._at_ms = 0

    def look(self, view: ClusterView, now_ms: int) -> None:
        """Add the time since the last look, and look again."""
        passed = now_ms - self._at_ms
        for worker_id, (cores, chips) in self._rates.items():
            before = self.offered[worker_id]
            self.offered[worker_id] = (before[0] + cores * passed, before[1] + chips * passed)
        self._at_ms = now_ms
        self._rates = dict(_rates(view))

    def violations(self, before: Counted, after: Counted) -> Iterator[str]:
        """Yield the workers whose rows do not add up.

        Args:
            before: The stored sums by worker at the first look.
            after: The same at the last look.
        """
        for worker_id in sorted({*self.offered, *map(WorkerId, after)}):
            there, then, offered = after.get(worker_id), before.get(worker_id, (0, 0)), self.offered[worker_id]
            for place, what in enumerate(("core", "chip")):
                counted = (there or (0, 0))[place] - then[place]
                # Each row is rounded to a millisecond.
                if abs(counted - offered[place]) > 50:
                    yield f"{worker_id}: the ledger counts {counted} {what}-ms; there were {offered[place]:.0f}"


def read_all(state_dir: Path) -> Counted:
    """Return the stored sums of core-ms and chip-ms by worker, if each is its own group."""
    sums = ", ".join("+".join(f"{use.name}_{unit}_ms" for use in Use) for unit in ("core", "chip"))
    cores, chips = sums.split(", ")
    with closing(sqlite3.connect(state_dir / DATABASE_NAME)) as database:
        rows = database.execute(f"SELECT worker_group, sum({cores}), sum({chips}) FROM ledger GROUP BY 1")
        return {group: (core_ms, chip_ms) for group, core_ms, chip_ms in rows}


def _rates(view: ClusterView) -> Iterator[tuple[WorkerId, tuple[float, float]]]:
    for worker_id, worker in view.workers.items():
        load, device = view.loads[worker_id], worker.capacity.accelerator
        cores, chips = worker.capacity.cpu_millis, 0 if device is None else device.count
        if not worker.connected or worker.is_late:
            cores, chips = min(cores, load.cpu_millis), min(chips, load.device_count)
        yield worker_id, (cores / 1000, float(chips))
