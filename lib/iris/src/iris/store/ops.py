"""A commit's changes of the tables as data, to execute here and to replay elsewhere from the journal."""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from iris.store.access_rows import CREDENTIAL_COLUMNS, JOIN_TOKEN_COLUMNS, USER_TOKEN_COLUMNS
from iris.store.event_rows import EVENT_COLUMNS
from iris.store.ledger_rows import LEDGER_COLUMNS, LEDGER_KEY
from iris.store.rows import (
    ATTEMPT_USAGE_COLUMNS,
    BUDGET_COLUMNS,
    ENDPOINT_COLUMNS,
    JOB_COLUMNS,
    LOST_COLUMNS,
    SERIES_COLUMNS,
    STOPPING_COLUMNS,
    TASK_COLUMNS,
    USAGE_COLUMNS,
    WORKER_COLUMNS,
    Row,
)
from iris.store.slice_rows import CLOSURE_COLUMNS, SLICE_COLUMNS
from rigging.errors import MarinError

SPEC_COLUMNS: Final = ("job_id", "spec")
ENV_VARS_COLUMNS: Final = ("job_id", "env_vars")
TABLES: Final = {
    "jobs": (("job_id",), JOB_COLUMNS),
    "job_specs": (("job_id",), SPEC_COLUMNS),
    "job_env_vars": (("job_id",), ENV_VARS_COLUMNS),
    "tasks": (("job_id", "task_index"), TASK_COLUMNS),
    "workers": (("worker_id",), WORKER_COLUMNS),
    "budgets": (("user",), BUDGET_COLUMNS),
    "usage": (("user",), USAGE_COLUMNS),
    "ledger": (LEDGER_KEY, LEDGER_COLUMNS),
    "endpoints": (("endpoint_id",), ENDPOINT_COLUMNS),
    "attempt_usage": (("job_id", "task_index", "attempt"), ATTEMPT_USAGE_COLUMNS),
    "usage_series": (("job_id", "task_index"), SERIES_COLUMNS),
    "stopping": (("attempt_id",), STOPPING_COLUMNS),
    "lost_attempts": (("attempt_id",), LOST_COLUMNS),
    "join_tokens": (("token_id",), JOIN_TOKEN_COLUMNS),
    "notices": (("name",), ("name",)),
    "events": (("sequence",), EVENT_COLUMNS),
    "user_tokens": (("token_id",), USER_TOKEN_COLUMNS),
    "worker_credentials": (("secret_sha256",), CREDENTIAL_COLUMNS),
    "slices": (("name",), SLICE_COLUMNS),
    "closures": (("key",), CLOSURE_COLUMNS),
}
"""Key and columns of every table that a commit may change."""
_FIXED: Final = {"jobs": ("sequence", "submitted_at_ms")}
"""Columns that never change in a row. An update that sets an indexed column rewrites its index."""


@dataclass(frozen=True, slots=True)
class Upsert:
    """Write whole rows, replacing rows with the same key."""

    table: str
    columns: tuple[str, ...]
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove all rows with one of `ids` in the first column of the table's key."""

    table: str
    ids: Sequence[str | int]


Op = Upsert | Delete


def upsert(table: str, rows: Sequence[Row]) -> Upsert:
    """Return an upsert of rows with all columns of the table in this release."""
    return Upsert(table, TABLES[table][1], rows)


def execute(connection: sqlite3.Connection, op: Op) -> None:
    """Execute one op inside the open transaction."""
    if isinstance(op, Upsert):
        connection.executemany(_upsert_sql(op.table, op.columns), op.rows)
    else:
        connection.executemany(_delete_sql(op.table), [(name,) for name in op.ids])


@lru_cache(maxsize=64)
def _upsert_sql(table: str, columns: tuple[str, ...]) -> str:
    key = _key_of(table)
    if not all(name.isidentifier() for name in columns):
        raise MarinError(f"the journal names columns {columns} of table {table}, which cannot be")
    updates = ", ".join(f"{name}=excluded.{name}" for name in columns if name not in (*key, *_FIXED.get(table, ())))
    # Only identifiers are put into the text; values are always parameters.
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))}) "
        f"ON CONFLICT ({', '.join(key)}) DO {f'UPDATE SET {updates}' if updates else 'NOTHING'}"
    )


@lru_cache(maxsize=64)
def _delete_sql(table: str) -> str:
    return f"DELETE FROM {table} WHERE {_key_of(table)[0]} = ?"


def _key_of(table: str) -> tuple[str, ...]:
    if table not in TABLES:
        raise MarinError(f"the journal names a table {table!r}; known are {', '.join(TABLES)}")
    return TABLES[table][0]


def ops_to_json(ops: Sequence[Op], schema: int) -> str:
    """Return the ops of one commit as a line of JSON. `schema` is the version with these tables and columns."""
    items: list[object] = [
        ["upsert", op.table, op.columns, op.rows] if isinstance(op, Upsert) else ["delete", op.table, op.ids]
        for op in ops
    ]
    return json.dumps({"schema": schema, "ops": items}, separators=(",", ":"))


def ops_of_json(text: str) -> tuple[int, list[Op]]:
    """Return the schema version and the ops of one commit."""
    fields: dict[str, Any] = json.loads(text)
    ops: list[Op] = []
    for kind, table, *rest in fields["ops"]:
        ops.append(Upsert(table, tuple(rest[0]), rest[1]) if kind == "upsert" else Delete(table, rest[0]))
    return fields["schema"], ops
