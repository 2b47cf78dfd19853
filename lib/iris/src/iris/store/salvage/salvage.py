"""Making a database again from what can be read of a damaged one.

Rows are read from both ends of each table and by every key that other tables name, in copies of the damaged files and
with each repair of the file's head that may help; the attempt that gives most jobs counts. What cannot be read of a job
that has ended is left out; a live job of which anything is missing is ended, as it would not run what was submitted.
Where commits are lost, all live jobs are ended: they may have ended in what is lost, and none may run a second time.
"""

import contextlib
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from iris.store.damage import DATABASE_NAME, DatabaseDamaged, file_damage
from iris.store.db import connect, lock, migrate_to, migrations
from iris.store.salvage.logs import Leftovers, move_logs
from iris.store.salvage.rules import mend
from iris.store.salvage.wal_recovery import apply_pages, recover_pages
from iris.store.store import Store
from rigging.errors import Conflict, MarinError
from rigging.filesystem.atomic import sync_names

_SUFFIXES: Final = ("", "-wal", "-shm")
_WORK: Final = "iris.db.salvaging"
_PAGE: Final = 4096
_TABLES: Final = (
    *("jobs", "job_specs", "job_env_vars", "tasks", "workers", "budgets", "endpoints", "stopping", "usage"),
    *("lost_attempts", "attempt_usage", "replication", "join_tokens", "worker_credentials", "user_tokens", "notices"),
)
_KEYS: Final = {"job_id": ("jobs", "job_specs", "tasks", "job_env_vars")}

Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows that could be read of one table; `whole`: there is no sign of more."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    whole: bool


@dataclass(frozen=True, slots=True)
class Salvaged:
    """Result of a salvage.

    Args:
        damage: What was wrong. rows: How many rows of each table are in the new database.
        notes: What is missing or was changed, a line each.
        moved_to: Where the damaged files are.
        is_whole: Nothing is known to be missing.
    """

    damage: str
    rows: dict[str, int]
    notes: tuple[str, ...]
    moved_to: Path
    is_whole: bool = True


@dataclass(slots=True)
class _Try:
    version: int = 0
    lost_pages: int = 0
    """Pages of commits that are not in it."""
    tables: dict[str, Table] = field(default_factory=dict)

    @property
    def worth(self) -> tuple[int, int]:
        sizes = {name: len(table.rows) for name, table in self.tables.items()}
        return sizes.get("jobs", 0) + sizes.get("job_specs", 0), sum(sizes.values())


def damage_of(state_dir: Path) -> str:
    """Return the damage of the closed database in `state_dir`; empty: none was found.

    Raises Conflict when a controller uses it.
    """
    descriptor = lock(state_dir)
    try:
        return _damage(state_dir)
    finally:
        os.close(descriptor)


def salvage(state_dir: Path, now_s: float | None = None) -> Salvaged:
    """Replace a damaged database by one that has what can be read of it; the damaged files are moved aside.

    Raises:
        Conflict: A controller uses it, or nothing is wrong with it. MarinError: Nothing of it can be read.
    """
    now = time.time() if now_s is None else now_s
    descriptor = lock(state_dir)
    work = state_dir / _WORK
    try:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(mode=0o700)
        database = state_dir / DATABASE_NAME
        damage = _damage(state_dir)
        if not damage:
            raise Conflict(f"nothing is wrong with {database}, as far as can be told; it is left as it is")
        best = _best(_tries(database, work))
        if not best.tables:
            raise MarinError(
                f"nothing can be read of {database} ({damage}); it is left as it is. To begin anew, move it and "
                f"{state_dir / 'logs'} away"
            )
        fresh = work / "new.db"
        leftovers = Leftovers.found(state_dir / "logs")
        notes = _write(fresh, best, round(now * 1000), leftovers)
        rows = _count(fresh)
        place = state_dir / time.strftime("damaged-%Y%m%dT%H%M%SZ", time.gmtime(now))
        place.mkdir(mode=0o700)
        for suffix in _SUFFIXES:
            path = state_dir / (DATABASE_NAME + suffix)
            if path.exists():
                os.replace(path, place / path.name)
        move_logs(state_dir / "logs", leftovers.unknown, place / "logs")
        os.replace(fresh, database)
        sync_names(database)
        return Salvaged(damage, rows, notes, place, is_whole=not notes)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        os.close(descriptor)


def _damage(state_dir: Path) -> str:
    if not (state_dir / DATABASE_NAME).exists() and not file_damage(state_dir / DATABASE_NAME):
        return ""
    try:
        with contextlib.closing(connect(state_dir)) as connection:
            store = Store(connection, -1, state_dir / DATABASE_NAME)
            store.load()
            store.load(lean=True)
    except DatabaseDamaged as error:
        return error.what
    return ""


def _best(tries: Iterator[_Try]) -> _Try:
    """The first that was read without a hole, as those after it may show an older state; else the one with most."""
    found: list[_Try] = []
    for item in tries:
        found.append(item)
        if item.worth[0] and all(table.whole for table in item.tables.values()):
            return item
    return max(found, key=lambda item: item.worth)


def _tries(database: Path, work: Path) -> Iterator[_Try]:
    """Every way to read it: with its log page by page, as SQLite reads it, without; with its head mended or new."""
    yield _Try()
    log = recover_pages(database)
    wal = database.with_name(database.name + "-wal")
    for way in ("pages", "sqlite", "none"):
        for mend_head in (None, _mend_header, _replace_first_page):
            copy = work / "copy.db"
            for suffix in _SUFFIXES:
                copy.with_name(copy.name + suffix).unlink(missing_ok=True)
            if database.exists():
                shutil.copyfile(database, copy)
            if way == "sqlite" and wal.exists():
                shutil.copyfile(wal, copy.with_name(copy.name + "-wal"))
            if not copy.exists() or not copy.stat().st_size:
                if way == "none" or not wal.exists():
                    continue
                shutil.copyfile(_fresh(work / "template.db"), copy)  # the log alone may have most of it
            if way == "pages":
                apply_pages(copy, log)
            if mend_head is not None:
                mend_head(copy, work)
            with contextlib.suppress(sqlite3.Error):
                found = _read(copy)
                # With a damaged log the other ways show an older state.
                others = log.lost + log.repaired if way == "sqlite" else max(log.lost, len(log.pages))
                found.lost_pages = log.lost if way == "pages" else others
                yield found


def _mend_header(copy: Path, work: Path) -> None:
    """Write a header that fits the file: whole pages, as many as there are."""
    content = bytearray(copy.read_bytes())
    template = _fresh(work / "template.db").read_bytes()
    content += bytes(-len(content) % _PAGE)
    content[:100] = template[:100]
    content[28:32] = (len(content) // _PAGE).to_bytes(4, "big")
    content[92:96] = content[24:28]
    copy.write_bytes(content)


def _replace_first_page(copy: Path, work: Path) -> None:
    """Give it the list of tables of a new database: where tables begin is the same in each."""
    content = bytearray(copy.read_bytes())
    template = _fresh(work / "template.db").read_bytes()
    content[:_PAGE] = template[:_PAGE]
    copy.write_bytes(content)
    _mend_header(copy, work)


def _fresh(path: Path) -> Path:
    if not path.exists():
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            migrate_to(connection, len(migrations()))
    return path


def _read(copy: Path) -> _Try:
    with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.text_factory = lambda data: data.decode(errors="surrogateescape")
        connection.execute("PRAGMA cell_size_check=1")
        try:
            (version,) = connection.execute("SELECT max(version) FROM schema_version").fetchone()
        except sqlite3.Error:
            version = None
        known = {str(row[0]) for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        found = _Try(int(version or len(migrations())))
        for name in _TABLES:
            if name in known:
                found.tables[name] = _read_table(connection, name)
        _fill_by_key(connection, found)
        return found


def _read_table(connection: sqlite3.Connection, name: str) -> Table:
    try:
        info = connection.execute(f"PRAGMA table_info({name})").fetchall()
    except sqlite3.Error:
        return Table((), (), False)
    columns = tuple(str(row[1]) for row in info)
    key = [str(row[1]) for row in sorted(info, key=lambda row: row[5]) if row[5]]
    forward, whole = _scan(
        connection, f"SELECT * FROM {name} ORDER BY {', '.join(key)}" if key else f"SELECT * FROM {name}"
    )
    rows = dict.fromkeys(forward)
    if not whole and key:
        backward, _ = _scan(connection, f"SELECT * FROM {name} ORDER BY {', '.join(f'{part} DESC' for part in key)}")
        rows |= dict.fromkeys(reversed(backward))
    intact = tuple(row for row in rows if _is_text_whole(row))
    return Table(columns, intact, whole and len(intact) == len(rows))


def _scan(connection: sqlite3.Connection, query: str, *values: object) -> tuple[list[Row], bool]:
    rows: list[Row] = []
    try:
        for row in connection.execute(query, values):
            rows.append(row)
    except sqlite3.Error:
        return rows, False
    return rows, True


def _fill_by_key(connection: sqlite3.Connection, found: _Try) -> None:
    """Ask tables with a hole for the jobs that the other tables have."""
    ids = {
        row[table.columns.index("job_id")]
        for name, table in found.tables.items()
        if name in _KEYS["job_id"] and table.columns
        for row in table.rows
    }
    for name in _KEYS["job_id"]:
        table = found.tables.get(name)
        if table is None or table.whole or not table.columns:
            continue
        rows = dict.fromkeys(table.rows)
        for job_id in ids:
            more, _ = _scan(connection, f"SELECT * FROM {name} WHERE job_id = ?", job_id)
            rows |= dict.fromkeys(row for row in more if _is_text_whole(row))
        found.tables[name] = Table(table.columns, tuple(rows), False)


def _is_text_whole(row: Row) -> bool:
    for value in row:
        if isinstance(value, str) and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                return False
    return True


def _write(fresh: Path, found: _Try, now_ms: int, leftovers: Leftovers) -> tuple[str, ...]:
    """Make the new database; returns what is to be told."""
    os.close(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    with contextlib.closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
        version = found.version if 0 < found.version <= len(migrations()) else len(migrations())
        migrate_to(connection, version)
        connection.execute("BEGIN")
        for name, table in found.tables.items():
            _insert(connection, name, table)
        # What is missing here may be in a copy elsewhere: the two histories part.
        connection.execute("UPDATE replication SET generation = 0") if version > 2 else None
        connection.execute("COMMIT")
        migrate_to(connection, len(migrations()))
        damaged = frozenset(name for name in _TABLES if name in found.tables and not found.tables[name].whole)
        older = f"{found.lost_pages} pages of its newest commits cannot be read" if found.lost_pages else ""
        notes = mend(connection, damaged, now_ms, older, leftovers)
    with fresh.open("rb") as file:
        os.fsync(file.fileno())
    return notes


def _insert(connection: sqlite3.Connection, name: str, table: Table) -> None:
    known = {str(row[1]) for row in connection.execute(f"PRAGMA table_info({name})")}
    places = [i for i, column in enumerate(table.columns) if column in known]
    if not places:
        return
    columns = ", ".join(table.columns[i] for i in places)
    marks = ", ".join("?" * len(places))
    for row in table.rows:
        with contextlib.suppress(sqlite3.Error):  # a value that the table does not allow is damage, too
            values: Sequence[object] = [row[i] for i in places]
            connection.execute(f"INSERT OR REPLACE INTO {name} ({columns}) VALUES ({marks})", values)


def _count(database: Path) -> dict[str, int]:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return {
            name: int(connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0])
            for name in ("jobs", "tasks", "workers", "budgets", "endpoints")
        }
