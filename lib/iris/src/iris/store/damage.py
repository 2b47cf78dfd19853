"""Detects a damaged database, and explains how to restore the state."""

import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from iris.store.wal import wal_damage
from rigging.errors import Conflict

DATABASE_NAME: Final = "iris.db"
_MAGIC: Final = b"SQLite format 3\x00"
MOST_CHECKED_BYTES: Final = 256 * 1024 * 1024
"""Maximum size for a complete check at a start. Damage in a larger database is reported when it is read."""
_SHOWN: Final = 3
_CORRUPT: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


class DatabaseDamaged(Conflict):
    """The controller's database is damaged. The message names the damage and the command to restore the state.

    Args:
        database: The file. what: The damage. remote: The remote state; empty for none.
    """

    def __init__(self, database: Path, what: str, remote: str = "") -> None:
        where = f"--state-dir {shlex.quote(str(database.parent))}"
        if remote:
            restore = f"`iris cluster controller restore {where} --remote-state-dir {shlex.quote(remote)}`"
            remedy = f"{restore} gets the state back from there"
        else:
            restore = f"`iris cluster controller restore {where} --remote-state-dir URL`"
            remedy = (
                f"{restore} gets back a state that is kept off the machine, too; "
                "without one, move the directory aside and start the controller anew: its jobs are lost"
            )
        super().__init__(f"the database {database} is damaged: {what}. Nothing was changed. {remedy}")
        self.database = database
        self.what = what


def is_corruption(error: sqlite3.Error) -> bool:
    """Return whether the error means that the file is damaged."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _CORRUPT


def database_damage(database: Path) -> str:
    """Return the damage of an existing database without changing it; empty if none was found."""
    if not database.exists():
        return ""
    found = file_damage(database)
    if found:
        return found
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return content_damage(connection, database)


def file_damage(database: Path) -> str:
    """Return the damage in the format of a closed database's files; empty for none."""
    if not database.exists():
        return _lost(database)
    size = database.stat().st_size
    with database.open("rb") as file:
        header = file.read(100)
    if not size:
        return "the file is empty (0 bytes)"
    if not header.startswith(_MAGIC):
        return "it does not start like a database"
    page_size = int.from_bytes(header[16:18], "big")
    page_size = 65536 if page_size == 1 else page_size
    if page_size < 512 or size % page_size:
        return f"it is truncated: {size} bytes are not a whole number of pages"
    return wal_damage(database)


def content_damage(connection: sqlite3.Connection, database: Path, most_bytes: int = MOST_CHECKED_BYTES) -> str:
    """Return the damage found by SQLite's own check; empty for none. Large databases are not checked.

    Args:
        connection: The open database.
        database: Its file.
        most_bytes: Maximum size of a file to check.
    """
    if database.stat().st_size > most_bytes:
        return ""
    try:
        found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(20)")]
        tables = {str(row[0]) for row in connection.execute("SELECT name FROM sqlite_schema")}
    except sqlite3.Error as error:
        return str(error)
    if found != ["ok"]:
        lines = [line.strip() for text in found for line in text.splitlines() if not line.startswith("***")]
        more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
        return "; ".join(lines[:_SHOWN]) + more
    return "" if "schema_version" in tables else "it has no tables of a controller"


def _lost(database: Path) -> str:
    wal = database.with_name(database.name + "-wal")
    if wal.exists() and wal.stat().st_size:
        return f"the file is gone, but its write-ahead log {wal} is there"
    logs = database.parent / "logs"
    if logs.is_dir() and any(path.is_file() for path in logs.rglob("~*")):
        return f"the file is gone, but the logs of its jobs are in {logs} (to begin anew, remove them, too)"
    return ""
