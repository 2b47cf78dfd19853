"""`iris usage` over a real table."""

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iris.client.types import QueryResult
from iris.domain.usage import DAY_MS, HOUR_MS, LedgerRow, Owner, Price, Use
from iris.store.query import run_query
from iris.store.store import Store
from support.iris.cli import Client, Iris

DAY = 20_000 * DAY_MS
SINCE = ("--since", "2024-10-01")


def row(start_ms: int, user: str, job: str, price: Price = Price(), **hours: float) -> LedgerRow:  # noqa: B008
    """Return a row; `hours` are by use, of cores or `_chips`."""

    def amounts(suffix: str) -> tuple[int, ...]:
        return tuple(round(hours.get(f"{use.name.lower()}{suffix}", 0) * HOUR_MS) for use in Use)

    return LedgerRow(start_ms, Owner(user, job, "pool"), amounts(""), amounts("_chips"), start_ms + HOUR_MS, price)


ROWS = [
    row(DAY, "ann", "/ann/run", Price(0.5, 2), productive=2, productive_chips=8, running=1),
    row(DAY, "ann", "/ann/run/step", lost=1),
    row(DAY, "ann", "", restart=0.5),
    row(DAY + HOUR_MS, "bob", "/bob/x", environment=0.25),
    row(DAY + HOUR_MS, "", "", idle=3),
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path)
    store.save_ledger(ROWS)
    yield store
    store.close()


@pytest.fixture
def ask(store: Store, tmp_path: Path, client: Client) -> Callable[[str | None], None]:
    def read_as(reader: str | None) -> None:
        def query(sql: str, max_rows: int) -> QueryResult:
            found = run_query(tmp_path, sql, max_rows, reader=reader)
            return QueryResult(found.columns, found.rows, found.truncated)

        client.query = query

    read_as(None)
    return read_as


def test_hours_by_user_with_their_cost(iris: Iris, ask: Callable[[str | None], None]) -> None:
    assert [" ".join(line.split()) for line in iris("usage", *SINCE)[1].splitlines()] == [
        "USER HOURS OF TOTAL PRODUCTIVE RUNNING ENVIRONMENT RESTART LOST IDLE COST",
        "(nobody) cores 3.00 - - - - - 3.00 0.00",
        "ann cores 4.50 2.00 1.00 - 0.50 1.00 - 17.50",
        "chips 8.00 8.00 - - - - -",
        "bob cores 0.25 - - 0.25 - - - 0.00",
    ]
    ask("bob")
    assert [item["name"] for item in json.loads(iris("usage", *SINCE, "--json")[1])] == ["bob"], "own rows only"


def test_hours_by_job_count_for_the_root_and_since_a_time(iris: Iris, ask: Callable[[str | None], None]) -> None:
    sums = csv.DictReader(io.StringIO(iris("usage", *SINCE, "--by", "job", "--csv")[1]))
    assert [(item["name"], item["class"], float(item["core_hours"])) for item in sums] == [
        ("(nobody)", "idle", 3),
        ("(small jobs of ann)", "restart", 0.5),
        ("/ann/run", "lost", 1),
        ("/ann/run", "productive", 2),
        ("/ann/run", "running", 1),
        ("/bob/x", "environment", 0.25),
    ]
    assert len(json.loads(iris("usage", "--since", "2024-10-04T01:30", "--json")[1])) == 2


def test_hours_fold_into_days_without_losing_anything(store: Store, tmp_path: Path) -> None:
    assert store.load_ledger() == ([ROWS[0], ROWS[4], ROWS[3]], DAY + 2 * HOUR_MS)
    store.save_ledger([row(DAY + HOUR_MS, "ann", "/ann/run", Price(0.5, 2), lost=4)])
    assert not store.fold_ledger(DAY)
    assert store.fold_ledger(DAY + DAY_MS)
    assert not store.fold_ledger(DAY + DAY_MS)
    found = run_query(tmp_path, "SELECT DISTINCT start_ms FROM ledger")
    assert found.rows == ((DAY,),)
    found = run_query(tmp_path, "SELECT class, core_seconds / 3600 FROM ledger WHERE job_id = '/ann/run' ORDER BY 1")
    assert found.rows == (("lost", 4.0), ("productive", 3.0)), "what has run for a month is of use"
