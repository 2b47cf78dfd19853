"""What users have had is known after a restart, so that fairness does not begin afresh."""

from pathlib import Path

import pytest

from iris.controller.upkeep.usage_keeper import UsageKeeper
from iris.core.state.usage import HALF_LIFE_MS, UsageLedger
from iris.store.store import Store

HOUR_MS = 3600 * 1000
T0 = 1_700_000_000_000


def keeper(tmp_path: Path, ledger: UsageLedger, now_ms: int) -> tuple[UsageKeeper, Store]:
    store = Store.open(tmp_path)
    made = UsageKeeper(ledger, store, lambda: now_ms)
    made.restore()
    return made, store


def test_use_survives_a_restart_and_goes_on_decaying(tmp_path: Path) -> None:
    ledger = UsageLedger()
    first, store = keeper(tmp_path, ledger, T0 + HOUR_MS)
    ledger.shift("ann", 10, T0)
    ledger.shift("ann", -10, T0 + HOUR_MS)
    had = ledger.use("ann", T0 + HOUR_MS)
    assert first.save() == 1
    assert first.save() == 0, "what only decays is not written again"
    store.close()
    again = UsageLedger()
    _, store = keeper(tmp_path, again, T0 + HOUR_MS + HALF_LIFE_MS)
    assert again.use("ann", T0 + HOUR_MS + HALF_LIFE_MS) == pytest.approx(had / 2)
    store.close()


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
