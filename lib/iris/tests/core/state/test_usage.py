"""What users have had lately: added up while they hold something, and forgotten by halves."""

import pytest

from iris.core.state.usage import HALF_LIFE_MS, UsageLedger
from iris.domain.states import TaskState
from support.iris.scheduling import InMemoryCluster, resources

HOUR = 3600 * 1000


def test_use_adds_up_and_is_forgotten_by_halves() -> None:
    ledger = UsageLedger()
    ledger.shift("ann", 2.0, 0)
    assert ledger.held("ann") == 2.0
    assert ledger.use("ann", HOUR) == pytest.approx(2.0 * HOUR, rel=0.02)
    ledger.shift("ann", -2.0, HOUR)
    used = ledger.use("ann", HOUR)
    assert ledger.use("ann", HOUR + HALF_LIFE_MS) == pytest.approx(used / 2)
    assert (ledger.use("bob", HOUR), ledger.held("bob")) == (0.0, 0.0)


def test_time_that_goes_back_takes_nothing_away() -> None:
    ledger = UsageLedger()
    for now_ms in (HOUR, 0):
        ledger.shift("ann", 1.0, now_ms)
    assert ledger.use("ann", 0) == 0.0


def test_the_view_keeps_it_as_attempts_come_and_go(cluster: InMemoryCluster) -> None:
    cluster.launch("/ann/job", resources(3))
    assert cluster.view.usage.held("ann") == 3.0
    cluster.now_ms += HOUR
    cluster.observe("/ann/job/0:0", TaskState.SUCCEEDED)
    assert cluster.view.usage.held("ann") == 0.0
    assert cluster.view.usage.use("ann", cluster.now_ms) == pytest.approx(3 * HOUR, rel=0.02)
