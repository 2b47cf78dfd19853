"""Every kind of record counts: for whether there is something to store, and when outcomes are merged."""

import pytest

from iris.core.state.batch import Batch
from iris.core.state.changes import Changes, Reduction
from iris.domain.effects import JobEnded
from iris.domain.endpoints import RegisteredEndpoint
from iris.domain.entities import LostAttempt, Stopping, UserBudget
from iris.domain.ids import AttemptId, JobId, WorkerId
from iris.domain.resources import Resources

TABLES = ("jobs", "tasks", "workers", "budgets", "endpoints", "stopping", "lost")


def one(table: str, key: str = "a", value: object = None) -> Changes:
    """Changes of one record; what is merged does not depend on what it is."""
    made = Changes()
    getattr(made, table)[key] = value
    return made


@pytest.mark.parametrize("table", TABLES)
def test_each_kind_of_record_is_stored(table: str) -> None:
    assert one(table).is_durable
    assert one(table)


@pytest.mark.parametrize("name", ["forgotten_jobs", "forgotten_workers"])
def test_what_is_forgotten_is_stored_too(name: str) -> None:
    assert Changes(**{name: {"a"}}).is_durable


def test_lending_alone_is_a_change_that_is_not_stored() -> None:
    lending = one("lending", value=0)
    assert (bool(lending), lending.is_durable) == (True, False)
    assert (bool(Changes()), Changes().is_durable) == (False, False)


@pytest.mark.parametrize("table", [*TABLES, "lending"])
def test_a_batch_takes_in_each_kind_and_the_last_record_wins(table: str) -> None:
    batch = Batch()
    for changes in (one(table, "a", 1), one(table, "b", 2), one(table, "a", 3)):
        batch.add(Reduction(changes))
    assert getattr(batch.changes, table) == {"a": 3, "b": 2}
    assert batch


def test_effects_alone_make_a_batch_and_keep_their_order() -> None:
    batch = Batch()
    ends = [JobEnded(JobId(f"/u/{name}")) for name in "ab"]
    for end in ends:
        batch.add(Reduction(Changes(), (end,)))
    assert batch.effects == ends
    assert batch


def test_records_are_kept_under_their_ids() -> None:
    budget = UserBudget("ann", 2.0)
    endpoint = RegisteredEndpoint("/u/a/x", AttemptId("/u/a/0:0"), "h:1")
    lost = LostAttempt(JobId("/u/a"), WorkerId("w"), Resources())
    stopping = Stopping(JobId("/u/a"), WorkerId("w"), Resources())
    made = Changes.of(
        budgets=[budget],
        endpoints=[endpoint],
        lost=[(AttemptId("x"), lost)],
        stopping=[(AttemptId("y"), stopping)],
    )
    assert made == Changes(
        budgets={"ann": budget}, endpoints={endpoint.endpoint_id: endpoint}, lost={"x": lost}, stopping={"y": stopping}
    )
