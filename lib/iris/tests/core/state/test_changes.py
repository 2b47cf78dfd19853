"""Every kind of record counts: for whether there is something to store, and when outcomes are merged in a batch."""

import pytest

from iris.core.state.batch import Batch
from iris.core.state.changes import Changes, Reduction
from iris.domain.effects import JobEnded
from iris.domain.endpoints import RegisteredEndpoint
from iris.domain.entities import LostAttempt, Stopping, UserBudget
from iris.domain.events import JobSubmitted
from iris.domain.ids import AttemptId, JobId, WorkerId
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.resources import Resources
from support.iris.scheduling import InMemoryCluster

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


@pytest.mark.parametrize(
    ("changes", "is_any", "is_durable"),
    [
        (Changes(forgotten_jobs={JobId("a")}), False, True),
        (Changes(forgotten_workers={WorkerId("a")}), False, True),
        (one("lending", value=0), True, False),
        (Changes(), False, False),
    ],
)
def test_what_is_forgotten_is_stored_and_lending_is_not(changes: Changes, is_any: bool, is_durable: bool) -> None:
    assert changes.is_durable is is_durable
    if not changes.is_durable:
        assert bool(changes) is is_any


@pytest.mark.parametrize("table", [*TABLES, "lending"])
def test_a_batch_takes_in_each_kind_and_the_last_record_wins(table: str) -> None:
    batch = Batch()
    for changes in (one(table, "a", 1), one(table, "b", 2), one(table, "a", 3)):
        batch.add(Reduction(changes))
    assert getattr(batch.changes, table) == {"a": 3, "b": 2}
    assert batch


def test_effects_alone_make_a_batch_and_keep_their_order() -> None:
    batch = Batch()
    assert not batch
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
    by_attempt = {"lost": [(AttemptId("x"), lost)], "stopping": [(AttemptId("y"), stopping)]}
    made = Changes.of(budgets=[budget], endpoints=[endpoint], **by_attempt)
    assert made == Changes(
        budgets={"ann": budget}, endpoints={endpoint.endpoint_id: endpoint}, lost={"x": lost}, stopping={"y": stopping}
    )


def test_tasks_of_a_replaced_job_are_not_written_after_their_deletion(cluster: InMemoryCluster) -> None:
    cluster.submit(replicas=3)
    batch = Batch()
    batch.add(cluster.stop("/u/job"))
    assert len(batch.changes.tasks) == 3
    batch.add(cluster.do(JobSubmitted(JobSpec(JobId("/u/job"), CommandEntrypoint(("true",))))))
    assert list(batch.changes.tasks) == ["/u/job/0"]
    assert batch.changes.replaced == {"/u/job"}
