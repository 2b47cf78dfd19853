"""Runs operators' SQL queries: read-only, over the views of `iris.store.views`, with limits on time, rows and bytes.

Every query has its own connection, so the controller's writer never waits for one.
"""

import secrets
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iris.store.damage import DatabaseDamaged, is_corruption
from iris.store.db import DATABASE_NAME
from iris.store.views import READABLE, VIEWS, view_for
from rigging.errors import BudgetExceeded, Denied, InvalidRequest

Value = None | int | float | str | bytes
_Authorizer = Callable[[int, str | None, str | None, str | None, str | None], int]

DEFAULT_ROWS: Final = 1_000
MAX_ROWS: Final = 100_000
TIME_LIMIT_S: Final = 5.0

_MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
_MAX_VALUE_BYTES: Final = 4 * 1024 * 1024
_MAX_SQL_BYTES: Final = 100_000
_STEPS_BETWEEN_LOOKS: Final = 1_000
_FETCH: Final = 200
_SIGNS_OF_DENIAL: Final = ("not authorized", "authorization denied", "prohibited", "readonly database", "cannot modify")

_ALLOWED_ACTIONS: Final = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
_FORBIDDEN_FUNCTIONS: Final = frozenset({"load_extension", "fts3_tokenizer"})


@dataclass(frozen=True, slots=True)
class QueryRows:
    """The columns' names and the rows. `truncated` means that the result exceeds the limits."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    truncated: bool


def run_query(
    state_dir: Path, sql: str, max_rows: int = 0, time_limit_s: float = TIME_LIMIT_S, *, reader: str | None = None
) -> QueryRows:
    """Return the answer to one SELECT over the views.

    Call this in a separate process with hard limits: a single step of SQLite (`printf('%.*c', 2e9, 'x')`) may take
    longer than `time_limit_s`, and sorting and grouping need memory.

    Args:
        state_dir: The controller's state directory.
        sql: One SELECT statement.
        max_rows: Maximum number of rows; 0 for DEFAULT_ROWS.
        time_limit_s: Timeout of the query in seconds.
        reader: The user of the query, who sees only the columns of others' jobs that `iris.store.views` allows; None
            for an admin.

    Raises:
        InvalidRequest: The text is not a single valid SELECT, or max_rows is not allowed. Denied: The query would
            change or read private data. BudgetExceeded: The query took too long.
    """
    if not 0 <= max_rows <= MAX_ROWS:
        raise InvalidRequest(f"max_rows is {max_rows}; allowed are 1 to {MAX_ROWS}, and 0 for {DEFAULT_ROWS}")
    if not sql.strip():
        raise InvalidRequest(
            f"the query is empty; ask e.g. SELECT state_word, count(*) FROM jobs GROUP BY 1 ({_what()})"
        )
    if len(sql) > _MAX_SQL_BYTES:
        raise InvalidRequest(f"the query has {len(sql)} characters; at most {_MAX_SQL_BYTES} are allowed")
    deadline = time.monotonic() + time_limit_s
    connection = sqlite3.connect(f"file:{state_dir / DATABASE_NAME}?mode=ro", uri=True, isolation_level=None)
    try:
        connection.execute("PRAGMA temp_store=MEMORY")  # a large sort meets the limit of memory and fills no disk
        authorize = _authorize if reader is None else _restrict(connection, reader)
        if reader is None:
            for name, select in VIEWS.items():
                connection.execute(f"CREATE TEMP VIEW {name} AS {select}")
        connection.execute("PRAGMA query_only=1")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
        connection.set_authorizer(authorize)
        connection.set_progress_handler(lambda: int(time.monotonic() > deadline), _STEPS_BETWEEN_LOOKS)
        return _fetch(connection.execute(sql), max_rows or DEFAULT_ROWS)
    except (sqlite3.Error, sqlite3.Warning) as error:
        if time.monotonic() > deadline:
            raise too_slow(time_limit_s) from None
        if isinstance(error, sqlite3.Error) and is_corruption(error):
            raise DatabaseDamaged(state_dir / DATABASE_NAME, str(error)) from None
        raise _explain(error) from None
    finally:
        connection.close()


def too_slow(time_limit_s: float) -> BudgetExceeded:
    """Return the error of a query that exceeded its time limit."""
    return BudgetExceeded(
        f"the query took longer than {time_limit_s:g} s and was stopped; ask for less, e.g. for one user or job"
    )


def _fetch(cursor: sqlite3.Cursor, max_rows: int) -> QueryRows:
    if cursor.description is None:
        raise Denied(f"only SELECT is allowed ({_what()})")
    columns = tuple(column[0] for column in cursor.description)
    rows: list[tuple[Value, ...]] = []
    size = 0
    while True:
        part = cursor.fetchmany(_FETCH)
        for row in part:
            size += sum(8 + len(value) if isinstance(value, str | bytes) else 8 for value in row)
            if len(rows) >= max_rows or size > _MAX_ANSWER_BYTES:
                return QueryRows(columns, tuple(rows), True)
            rows.append(row)
        if not part:
            return QueryRows(columns, tuple(rows), False)


def _authorize(action: int, first: str | None, second: str | None, _database: str | None, _source: str | None) -> int:
    if action == sqlite3.SQLITE_READ:
        # Without a column only rows are counted, and `first` may be a name that the query itself made up.
        return sqlite3.SQLITE_OK if first in READABLE or not second else sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and second in _FORBIDDEN_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _ALLOWED_ACTIONS else sqlite3.SQLITE_DENY


def _restrict(connection: sqlite3.Connection, reader: str) -> _Authorizer:
    """Create the views that a reader may see, and an authorizer that blocks all other reads.

    Only inner views, with secret names, may read the tables. SQLite tells the authorizer the name of the reading view,
    but a query could give its WITH clause the name of any known view.
    """
    prefix = f"v{secrets.token_hex(16)}_"
    for name, select in VIEWS.items():
        inner = prefix + name
        connection.execute(f"CREATE TEMP VIEW {inner} AS {select}")
        columns = [column[0] for column in connection.execute(f"SELECT * FROM {inner} LIMIT 0").description]
        connection.execute(f"CREATE TEMP VIEW {name} AS {view_for(reader, name, inner, columns)}")

    def authorize(action: int, first: str | None, second: str | None, database: str | None, source: str | None) -> int:
        if action == sqlite3.SQLITE_READ and second and not (source or "").startswith(prefix):
            # Inner views read tables; public views read inner ones; a query reads public ones.
            if database == "main" or ((first or "").startswith(prefix) and source not in VIEWS):
                return sqlite3.SQLITE_DENY
            if (first or "").startswith(prefix):
                return sqlite3.SQLITE_OK
        return _authorize(action, first, second, database, source)

    return authorize


def _explain(error: Exception) -> Denied | InvalidRequest:
    text = str(error)
    if any(sign in text for sign in _SIGNS_OF_DENIAL):
        return Denied(f"the query is not allowed ({text}): only SELECT over {_what()} is")
    if "no such table" in text or "no such column" in text:
        return InvalidRequest(f"{text}; there are {_what()}, and docs/query.md lists their columns")
    return InvalidRequest(f"the query is not valid: {text}")


def _what() -> str:
    *names, last = VIEWS
    return f"the tables {', '.join(names)} and {last}"
