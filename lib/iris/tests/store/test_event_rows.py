"""Events in their rows: nothing that decides is lost, and a row is small."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from iris.core.state.changes import Changes
from iris.domain.entities import UserBudget
from iris.domain.events import (
    Assigned,
    AttemptObserved,
    AutoCordoned,
    BudgetSet,
    Caller,
    ControllerStarted,
    JobSubmitted,
    LendCpu,
    PlaceClosed,
    Preempted,
    Record,
    Recorded,
    Requested,
    SliceChanged,
    StopRequested,
    TimedOut,
    WorkerConnected,
    WorkerCordoned,
    WorkerHeard,
    WorkerLate,
    WorkerTroubled,
)
from iris.domain.ids import AttemptId, JobId, TaskId, WorkerId
from iris.domain.resources import Device, Resources
from iris.domain.states import FailureKind, PreemptionReason, PriorityBand, TaskState, TimeoutKind
from iris.store.event_rows import event_row, record_of
from iris.store.store import Store
from support.iris.stored_jobs import FULL_SPEC

NAME, WORKER = AttemptId("/ann/train/0:1"), WorkerId("w1")
HOST = Resources(4000, 2**34, 2**40, Device("tpu", "v5p-8", 4, ("v5p-16",)))


@pytest.mark.parametrize(
    "what",
    [
        JobSubmitted(FULL_SPEC),
        StopRequested(JobId("/ann/train"), "enough", keep_children=True),
        Assigned(TaskId("/ann/train/0"), WORKER, prefilled=True),
        AttemptObserved(NAME, WORKER, TaskState.RUNNING, at_ms=1_000_007, started_at_ms=999_000),
        AttemptObserved(NAME, WORKER, TaskState.FAILED, 1, 9, "it's over", FailureKind.OOM),
        WorkerConnected(WORKER, "one", HOST, {"zone": "a"}),
        WorkerTroubled(WORKER, "one", ""),
        WorkerLate(WORKER, 9000, keeps=True),
        WorkerHeard(WORKER),
        WorkerCordoned(WORKER, "bad disk", drain=True, by="root"),
        AutoCordoned(WORKER, "3 attempts in a row failed"),
        TimedOut(JobId("/ann/train"), TimeoutKind.RUN),
        LendCpu(NAME, False),
        Preempted(NAME, "for /bob/urgent"),
        Preempted(NAME, "the host ends", PreemptionReason.SPOT),
        SliceChanged("v5e-3", "v5e", "leaving", "lost: host 1"),
        PlaceClosed("group v5e", "stock-out", "no capacity"),
        BudgetSet(UserBudget("ann", 2.5, PriorityBand.BATCH)),
        Requested("revoke users' tokens", "t-1"),
        ControllerStarted("0.1.0"),
    ],
    ids=lambda what: type(what).__name__,
)
def test_an_event_comes_back_from_its_row(what: Recorded) -> None:
    record = Record(7, 1_000_000, what, Caller("root", "10.0.0.7"), is_decision=True)
    assert record_of(event_row(1, record), lambda _: FULL_SPEC) == record


def test_an_event_of_a_small_job_takes_less_than_a_hundred_bytes(tmp_path: Path) -> None:
    store, records = Store.open(tmp_path), []
    for number in range(2000):
        task, at_ms = TaskId(f"/ann/sweep-learning-rate-{number}/0"), 1_795_827_613_230 + number
        attempt, worker = AttemptId(f"{task}:0"), WorkerId(f"v5p-slice-{number % 9}-host-3")
        seen = AttemptObserved(attempt, worker, TaskState.SUCCEEDED, at_ms=at_ms - 15, started_at_ms=at_ms - 2900)
        records += [Record(number, at_ms, Assigned(task, worker), Caller()), Record(number, at_ms, seen, Caller())]
    store.commit(Changes(records=records))
    with closing(sqlite3.connect(tmp_path / "iris.db")) as database:
        (size,) = database.execute("SELECT sum(pgsize) FROM dbstat WHERE name = 'events'").fetchone()
    assert size / len(records) < 100


def test_old_events_go_and_so_do_those_that_are_too_many(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    for at_ms in (1, 2, 3, 4, 5, 6):
        store.commit(Changes(records=[Record(at_ms, at_ms, WorkerHeard(WORKER), Caller())]))
    assert store.forget_events(before_ms=3, keep=10, at_once=1) == 1, "a part at a time"
    assert store.forget_events(before_ms=3, keep=10) == 1
    assert store.forget_events(before_ms=3, keep=3) == 1
    assert store.forget_events(before_ms=3, keep=3) == 0
    store.close()
    again = Store.open(tmp_path)
    again.commit(Changes(records=[Record(1, 7, WorkerHeard(WORKER), Caller())]))
    with closing(sqlite3.connect(tmp_path / "iris.db")) as database:
        assert database.execute("SELECT sequence FROM events").fetchall() == [(4,), (5,), (6,), (7,)]
