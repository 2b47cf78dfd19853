"""Saves users' usage accounts, so that fairness among users survives a restart."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from iris.core.state.usage import UsageLedger
from iris.store.store import UserUse
from rigging.errors import Unavailable

logger = logging.getLogger(__name__)

EVERY_S: Final = 60.0
_NEGLIGIBLE: Final = 1000.0
"""Smallest change to save: one core for a second."""


class UsageStore(Protocol):
    """Stores the accounts."""

    def save_usage(self, accounts: list[UserUse]) -> None: ...

    def load_usage(self) -> list[UserUse]: ...


class UsageKeeper:
    """Saves the ledger once a minute and at the end, in the engine's loop, which writes the store.

    Args:
        ledger: The users' accounts.
        store: The store.
        clock_ms: Returns Unix time in milliseconds.
    """

    def __init__(self, ledger: UsageLedger, store: UsageStore, clock_ms: Callable[[], int]) -> None:
        self._ledger = ledger
        self._store = store
        self._clock_ms = clock_ms
        self._saved: dict[str, float] = {}

    def restore(self) -> None:
        """Load the saved accounts into the ledger. Current allocations count from the time of the last save."""
        saved = {item.user: item for item in self._store.load_usage()}
        now_ms = self._clock_ms()
        for user in {*saved, *self._ledger.users()}:
            item = saved.get(user, UserUse(user, 0.0, now_ms))
            self._ledger.restore(user, item.use, min(item.at_ms, now_ms))
            self._saved[user] = item.use

    def save(self) -> int:
        """Write the changed accounts and return their number. Raise Unavailable."""
        now_ms = self._clock_ms()
        changed = []
        for user in self._ledger.users():
            use = self._ledger.use(user, now_ms)
            before = self._saved.get(user)
            # An account that only decays is worked out from its last record.
            if self._ledger.held(user) or before is None or use > before + _NEGLIGIBLE:
                changed.append(UserUse(user, use, now_ms))
                self._saved[user] = use
        self._store.save_usage(changed)
        return len(changed)

    async def run(self) -> None:
        """Save once a minute until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            self.save_or_tell()

    def save_or_tell(self) -> None:
        """Save the accounts. Only log a failure, because only fairness depends on them."""
        try:
            self.save()
        except Unavailable:
            logger.exception("the use of users could not be saved")
