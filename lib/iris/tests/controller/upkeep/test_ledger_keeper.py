"""The ledger is saved once a minute; what could not be saved is saved later."""

from types import SimpleNamespace
from typing import Any

import pytest

from iris.controller.upkeep.ledger_keeper import HOURS_KEPT_MS, LedgerKeeper
from iris.core.state.changes import Changes
from iris.domain.usage import DAY_MS, LedgerRow, Price, Use
from rigging.errors import Unavailable
from support.iris.scheduling import InMemoryCluster, resources


class Rows:
    """A store that may be full."""

    def __init__(self) -> None:
        self.is_full = False
        self.rows: list[LedgerRow] = []
        self.folded: list[int] = []

    def save_ledger(self, rows: list[LedgerRow]) -> None:
        if self.is_full:
            raise Unavailable("disk full")
        self.rows = list(rows)

    def load_ledger(self) -> tuple[list[LedgerRow], int]:
        return [], 0

    def fold_ledger(self, before_ms: int) -> bool:
        self.folded.append(before_ms)
        return len(self.folded) == 1


def test_what_could_not_be_saved_is_saved_later_with_its_price(caplog: pytest.LogCaptureFixture) -> None:
    cluster, store, listeners = InMemoryCluster(), Rows(), []
    engine: Any = SimpleNamespace(view=cluster.view, kept={}, listen_to_changes=listeners.append)
    now = 100 * DAY_MS
    keeper = LedgerKeeper(engine, store, lambda: now, prices={"cpu": Price(0.5)})
    cluster.connect("w", resources(2))
    listeners[0](Changes.of(workers=cluster.view.workers.values()))
    store.is_full = True
    now += 60_000
    keeper.save_or_tell()
    assert "the ledger could not be saved" in caplog.text
    store.is_full = False
    now += 60_000
    keeper.save_or_tell()
    newest = {row.owner: row for row in store.rows}
    assert [(row.core_ms[Use.IDLE], row.price) for row in newest.values()] == [(240_000, Price(0.5))]
    for _ in range(2):
        keeper.save_or_tell()
    assert store.folded == [100 * DAY_MS - HOURS_KEPT_MS] * 2, "until nothing is left, once a day"
