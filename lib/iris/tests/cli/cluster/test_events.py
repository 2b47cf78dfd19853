"""`iris cluster events` and `audit` over a real table."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.client.types import QueryResult
from iris.core.state.changes import Changes
from iris.domain.entities import UserBudget
from iris.domain.events import (
    NOBODY,
    Assigned,
    AttemptObserved,
    Begun,
    BudgetSet,
    Caller,
    JobSubmitted,
    PlaceClosed,
    Preempted,
    Record,
    Recorded,
    Requested,
    SliceChanged,
    WorkerCordoned,
)
from iris.domain.ids import AttemptId, TaskId, WorkerId
from iris.domain.states import FailureKind, TaskState
from iris.store.query import run_query
from iris.store.store import Store
from support.iris.cli import Client, Iris
from support.iris.stored_jobs import PLAIN_SPEC

NOW_MS = 1_700_000_000_000
NAME, WORKER = AttemptId("/ann/a/0:0"), WorkerId("w1")
HISTORY: tuple[tuple[Recorded, Caller], ...] = (
    (JobSubmitted(PLAIN_SPEC), Caller("ann", "10.0.0.7")),
    (Assigned(TaskId("/ann/a/0"), WORKER), NOBODY),
    (Begun(NAME), NOBODY),
    (Preempted(NAME, "for /bob/b"), NOBODY),
    (AttemptObserved(AttemptId("/o'neil/c/0:0"), WORKER, TaskState.FAILED, 3, 0, "bang", FailureKind.USER), NOBODY),
    (WorkerCordoned(WORKER, "bad fan", drain=True), Caller("root", "unix")),
    (Requested("revoke users' tokens", "t-1"), Caller("root", "unix")),
    (BudgetSet(UserBudget("bob", 8)), Caller("root", "unix")),
)
OF_SLICES: tuple[Recorded, ...] = (
    SliceChanged("v4-0", "v4", "failed", "no TPU here"),
    PlaceClosed("group v4", "stock-out", "no capacity"),
    PlaceClosed("group v4", ""),
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path)
    history = [Record(1, NOW_MS + 1000 * number, *recorded) for number, recorded in enumerate(HISTORY)]
    store.commit(Changes(records=history))
    yield store
    store.close()


@pytest.fixture
def client(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    client = Client()

    def query(sql: str, max_rows: int) -> QueryResult:
        found = run_query(tmp_path, sql, max_rows)
        return QueryResult(found.columns, found.rows, found.truncated)

    client.query = query
    return client


def test_events_are_a_line_each_and_bookkeeping_is_left_out(iris: Iris) -> None:
    assert iris("cluster", "events")[1].splitlines() == [
        f"2023-11-14 22:13:20  submitted           {PLAIN_SPEC.job_id}  by ann from 10.0.0.7",
        "2023-11-14 22:13:21  placed              /ann/a/0 on w1",
        "2023-11-14 22:13:23  preempted           /ann/a/0:0  for /bob/b",
        "2023-11-14 22:13:24  failed              /o'neil/c/0:0 on w1  bang; exit_code 3",
        "2023-11-14 22:13:25  cordoned            w1  bad fan; drained; by root from unix",
        "2023-11-14 22:13:26  requested           t-1  revoke users' tokens; by root from unix",
        "2023-11-14 22:13:27  budget set          /bob  max_weight 8; max_band production; by root from unix",
    ]


def test_events_of_slices_and_closed_groups_say_what_became_of_them(iris: Iris, store: Store) -> None:
    store.commit(Changes(records=[Record(2, NOW_MS, one, NOBODY) for one in OF_SLICES]))
    assert iris("cluster", "events", "-n", "3")[1].splitlines() == [
        "2023-11-14 22:13:20  slice               v4-0  failed; no TPU here",
        "2023-11-14 22:13:20  closed              group v4  stock-out; no capacity",
        "2023-11-14 22:13:20  closed              group v4  open again",
    ]


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        (("--all", "-n", "6"), ["begun", "preempted", "failed", "cordoned", "requested", "budget set"]),
        (("--user", "root"), ["cordoned", "requested", "budget set"]),
        (("--user", "o'neil"), ["failed"]),
        (("--kind", "begun", "--kind", "placed"), ["placed", "begun"]),
        (("--since", "2023-11-14T22:13:26+00:00"), ["requested", "budget set"]),
        (("-n", "1"), ["budget set"]),
        (("--about", "w1"), ["placed", "failed", "cordoned"]),
        (("--about", "a"), ["placed", "preempted"]),
        (("--about", "/o'neil/c/"), ["failed"]),
    ],
    ids=["all", "caller", "owner", "kinds", "since", "last", "worker", "own job", "job"],
)
def test_options_choose_events(iris: Iris, options: tuple[str, ...], kinds: list[str]) -> None:
    lines = iris("cluster", "events", "--json", *options)[1].splitlines()
    assert [json.loads(line)["kind"] for line in lines] == kinds


def test_a_search_without_result_names_the_kinds(iris: Iris) -> None:
    known = "begun, budget set, cordoned, failed, placed, preempted, requested, submitted"
    assert iris("cluster", "events", "--kind", "preemted")[1:] == ("", f"no event matches; kinds so far: {known}\n")
    assert iris("cluster", "events", "--user", "eve")[1:] == ("", "no event matches\n")


def test_new_events_are_followed(iris: Iris, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter((True, False))

    def sleep(_: float) -> None:
        if not next(looks):
            raise KeyboardInterrupt
        store.commit(Changes(records=[Record(9, NOW_MS, Preempted(NAME, "for /bob/c"), NOBODY)]))

    monkeypatch.setattr(time, "sleep", sleep)
    code, out, _ = iris("cluster", "events", "-f", "-n", "1")
    assert code == 130
    assert [line.split()[2] for line in out.splitlines()] == ["budget", "preempted"]


def test_the_audit_is_a_table_of_requests(iris: Iris) -> None:
    assert iris("cluster", "audit", "--user", "eve") == (0, "", "no request matches\n")
    heads, *rows = iris("cluster", "audit", "--user", "root")[1].splitlines()
    assert heads.split() == ["WHEN", "WHO", "FROM", "WHAT", "SUBJECT", "REASON"]
    assert [" ".join(row.split()) for row in rows] == [
        "2023-11-14 22:13:25 root unix cordoned w1 bad fan",
        "2023-11-14 22:13:26 root unix revoke users' tokens t-1 -",
        '2023-11-14 22:13:27 root unix budget set /bob {"max_weight":8,"max_band":1}',
    ]
