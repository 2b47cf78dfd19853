"""What users have had is known after a restart, so that fairness does not begin afresh."""

from pathlib import Path

import pytest

from iris.controller.upkeep.usage_keeper import UsageKeeper
from iris.core.state.usage import HALF_LIFE_MS, UsageLedger
from iris.store.store import Store, UserUse

HOUR_MS = 3600 * 1000
T0 = 1_700_000_000_000


def keeper(tmp_path: Path, ledger: UsageLedger, now_ms: int) -> tuple[UsageKeeper, Store]:
    store = Store.open(tmp_path)
    made = UsageKeeper(ledger, store, lambda: now_ms)
    made.restore()
    return made, store


def test_who_holds_something_over_the_restart_is_charged_for_the_time_between(tmp_path: Path) -> None:
    ledger = UsageLedger()
    first, store = keeper(tmp_path, ledger, T0)
    ledger.shift("ann", 10, T0)
    first.save()
    store.close()
    again = UsageLedger()
    again.shift("ann", 10, 0)  # as a view is loaded: no one knows since when
    again.shift("bob", 10, 0)
    _, store = keeper(tmp_path, again, T0 + HOUR_MS)
    assert again.use("ann", T0 + HOUR_MS) == pytest.approx(10 * HOUR_MS, rel=0.02)
    assert again.use("bob", T0 + HOUR_MS) == 0, "nothing is known of bob, so nothing is held against him"
    assert again.held("bob") == 10
    store.close()


def test_a_save_that_fails_is_told_and_costs_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ledger = UsageLedger()
    first, store = keeper(tmp_path, ledger, T0)
    ledger.shift("ann", 10, T0)
    store.close()
    first.save_or_tell()
    assert "the use of users could not be saved" in caplog.text
    assert "the use of 1 users could not be written" in caplog.text


class Accounts:
    def __init__(self, *known: UserUse) -> None:
        self.known = list(known)
        self.saved: list[list[UserUse]] = []

    def load_usage(self) -> list[UserUse]:
        return self.known

    def save_usage(self, accounts: list[UserUse]) -> None:
        self.saved.append(accounts)


def test_only_accounts_that_have_grown_are_written() -> None:
    now = 1_000_000
    ledger, store = (
        UsageLedger(),
        Accounts(UserUse("old", 5000.0, now + 99), UserUse("gone", 5000.0, now - HALF_LIFE_MS)),
    )
    keeper = UsageKeeper(ledger, store, lambda: now)
    keeper.restore()
    assert ledger.use("old", now) == pytest.approx(5000.0), "a time to come is now"
    assert ledger.use("gone", now) == pytest.approx(2500.0)
    assert keeper.save() == 0, "it only decays"
    ledger.shift("ann", 2, now)
    now += 1000
    assert keeper.save() == 1
    assert [(item.user, item.at_ms) for item in store.saved[-1]] == [("ann", now)]
    assert store.saved[-1][0].use == pytest.approx(2000.0, rel=0.01)
    ledger.shift("ann", -2, now)
    now += 1
    assert keeper.save() == 0
    ledger.shift("ann", 1, now)
    assert keeper.save() == 1, "who holds something is charged from here"
    ledger.shift("ann", -1, now)
    ledger.restore("ann", store.saved[-1][0].use + 1100, now)
    assert keeper.save() == 1
    ledger.restore("ann", store.saved[-1][0].use + 900, now)
    assert keeper.save() == 0, "negligible"
