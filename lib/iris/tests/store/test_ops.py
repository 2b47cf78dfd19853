"""What a commit does, as data: the same when it is carried out from the journal, and nothing else than tables known."""

import json
import sqlite3

import pytest

from iris.store.ops import TABLES, Delete, Op, Upsert, execute, ops_of_json, ops_to_json, upsert
from rigging.errors import MarinError


def budgets(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    return connection.execute("SELECT * FROM budgets ORDER BY user").fetchall()


def test_rows_of_the_same_key_are_replaced_and_others_stay(connection: sqlite3.Connection) -> None:
    execute(connection, upsert("budgets", [("ann", 1.0, 2), ("bob", 2.0, 2)]))
    execute(connection, upsert("budgets", [("ann", 5.0, 1), ("eve", 0.0, 3)]))
    assert budgets(connection) == [("ann", 5.0, 1), ("bob", 2.0, 2), ("eve", 0.0, 3)]


def test_a_removal_takes_all_rows_of_an_id(connection: sqlite3.Connection) -> None:
    columns = TABLES["tasks"][1]
    row = {"job_id": "/u/a", **dict.fromkeys(columns[2:], 0)}
    rows = [(job, index, *list(row.values())[1:]) for job in ("/u/a", "/u/b") for index in range(3)]
    assert columns[:2] == ("job_id", "task_index")
    execute(connection, upsert("tasks", rows))
    execute(connection, Delete("tasks", ["/u/a", "/u/none"]))
    found = connection.execute("SELECT job_id, task_index FROM tasks ORDER BY 1, 2").fetchall()
    assert found == [("/u/b", 0), ("/u/b", 1), ("/u/b", 2)]


OPS: list[Op] = [upsert("budgets", [["ann", 1.5, 2]]), Delete("endpoints", ["a", "b"])]  # type: ignore[list-item]


def test_ops_come_back_from_a_line_with_the_version_of_the_tables() -> None:
    text = ops_to_json(OPS, 7)
    assert "\n" not in text
    schema, found = ops_of_json(text)
    assert (schema, found) == (7, OPS)
    assert json.loads(text)["ops"][1] == ["delete", "endpoints", ["a", "b"]]


@pytest.mark.parametrize("table", ["sqlite_schema", "budgets; DROP TABLE jobs", ""])
def test_a_table_or_column_that_is_not_one_of_these_is_refused(connection: sqlite3.Connection, table: str) -> None:
    for op in (Upsert(table, ("a",), [("x",)]), Delete(table, ["x"])):
        with pytest.raises(MarinError, match=r"the journal names a table .*; known are jobs, job_specs"):
            execute(connection, op)
    with pytest.raises(MarinError, match=r"the journal names columns .* of table budgets, which cannot be"):
        execute(connection, Upsert("budgets", ("user", "max_band) VALUES (1,2) --"), [("ann", 1)]))


@pytest.mark.parametrize("table", TABLES)
def test_columns_and_key_of_each_table_are_those_of_the_schema(connection: sqlite3.Connection, table: str) -> None:
    info = connection.execute(f"PRAGMA table_info({table})").fetchall()
    key, columns = TABLES[table]
    assert set(columns) == {row[1] for row in info}
    assert key == tuple(row[1] for row in sorted(info, key=lambda row: row[5]) if row[5])
