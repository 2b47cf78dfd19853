"""Keeps the ledger: feeds it with every committed batch, and saves it once a minute."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from iris.controller.engine.engine import Engine
from iris.core.ledger.ledger import Ledger, group_of
from iris.core.state.changes import Changes
from iris.domain.entities import Worker
from iris.domain.usage import DAY_MS, LedgerRow, Price
from rigging.errors import Unavailable

logger = logging.getLogger(__name__)

EVERY_S: Final = 60.0
HOURS_KEPT_MS: Final = 30 * DAY_MS
"""Older hours become days."""


class LedgerStore(Protocol):
    """Stores the ledger."""

    def save_ledger(self, rows: Sequence[LedgerRow]) -> None: ...

    def load_ledger(self) -> tuple[list[LedgerRow], int]: ...

    def fold_ledger(self, before_ms: int) -> bool: ...


class LedgerKeeper:
    """Saves the ledger in the engine's loop, which writes the store. A crash loses at most a minute.

    Args:
        engine: The engine with the loaded view.
        store: The store.
        clock_ms: Returns Unix time in milliseconds.
        by: Returns the group of a worker.
        prices: See `Ledger`.
    """

    def __init__(
        self,
        engine: Engine,
        store: LedgerStore,
        clock_ms: Callable[[], int],
        by: Callable[[Worker], str] = group_of,
        prices: Mapping[str, Price] | None = None,
    ) -> None:
        self._store = store
        self._clock_ms = clock_ms
        self._engine = engine
        self._unsaved: list[LedgerRow] = []
        self._folded_ms = 0
        rows, counted_ms = store.load_ledger()
        now_ms = clock_ms()
        self.ledger = Ledger(engine.view, min(counted_ms or now_ms, now_ms), rows, by, prices)
        engine.listen_to_changes(self._note)

    async def run(self) -> None:
        """Save once a minute until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            for _ in self.ledger.settle(self._clock_ms()):
                await asyncio.sleep(0)
            self._save(self._clock_ms())

    def save_or_tell(self) -> None:
        """Save the changes. Only log a failure: the next save includes them."""
        now_ms = self._clock_ms()
        for _ in self.ledger.settle(now_ms):
            pass
        self._save(now_ms)

    def _save(self, now_ms: int) -> None:
        self._unsaved += self.ledger.changed(now_ms)
        try:
            self._store.save_ledger(self._unsaved)
            self._unsaved = []
            day_ms = now_ms - now_ms % DAY_MS - HOURS_KEPT_MS
            if day_ms > self._folded_ms:  # one day at a time
                self.ledger.forget(day_ms)
                self._folded_ms = 0 if self._store.fold_ledger(day_ms) else day_ms
        except Unavailable:
            logger.exception("the ledger could not be saved")

    def _note(self, changes: Changes) -> None:
        now_ms = self._clock_ms()
        try:
            self.ledger.note(changes, now_ms)
            self.ledger.keep(self._engine.kept, now_ms)
        except Exception:  # a mistake of ours must not take along the answers that this turn owes
            logger.exception("the ledger could not take in a batch")
