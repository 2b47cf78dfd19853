"""Small logs of ended jobs in one SQLite file: as files, two lines of a job would take 8 KB of disk."""

import logging
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from iris.domain.ids import JobId

logger = logging.getLogger(__name__)

_SCHEMA: Final = """
    CREATE TABLE IF NOT EXISTS files (
        job_id TEXT NOT NULL, name TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (job_id, name)
    ) WITHOUT ROWID
"""


class LogShelf:
    """The files of ended jobs by job and name. An unreadable shelf counts as empty, and a warning is logged.

    `put` opens its own connection, in any thread. The other methods belong to one thread.

    Args:
        path: The database, created with the first `put`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept: sqlite3.Connection | None = None

    def put(self, jobs: Mapping[JobId, Mapping[str, bytes]]) -> None:
        """Store the files of jobs. On return they survive a power failure. Raise OSError if nothing was stored.

        Args:
            jobs: The content of each file, by job and name.
        """
        rows = [(job_id, name, data) for job_id, files in jobs.items() for name, data in files.items()]
        try:
            with closing(self._open()) as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", rows)
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise OSError(f"{self.path}: {error}") from error

    def files(self, job_id: str) -> dict[str, bytes]:
        """Return the content of a job's files by name; empty for none."""
        found = self._query("SELECT name, data FROM files WHERE job_id = ?", job_id)
        return dict(found)

    def jobs(self, above: str = "") -> list[str]:
        """Return the jobs that have files here: all, or `above` and its descendants."""
        if not above:
            return [str(row[0]) for row in self._query("SELECT DISTINCT job_id FROM files")]
        where = "job_id = ? OR job_id > ? AND job_id < ?"  # "0" follows "/"
        sql = f"SELECT DISTINCT job_id FROM files WHERE {where}"
        return [str(row[0]) for row in self._query(sql, above, f"{above}/", f"{above}0")]

    def remove(self, job_id: str, beginning: str = "") -> None:
        """Remove the files of a job whose names begin with `beginning`."""
        if self._connection() is not None:
            where = "job_id = ? AND substr(name, 1, ?) = ?"
            self._query(f"DELETE FROM files WHERE {where}", job_id, len(beginning), beginning)

    def close(self) -> None:
        """Close the database."""
        if self._kept is not None:
            self._kept.close()

    def _query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            connection = self._connection()
            return [] if connection is None else connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            logger.warning("small logs cannot be read from %s: %s", self.path, error)
            return []

    def _connection(self) -> sqlite3.Connection | None:
        if self._kept is None and self.path.exists():
            self._kept = self._open()
        return self._kept

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.touch(mode=0o600)
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=10)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(_SCHEMA)
        except sqlite3.Error:
            connection.close()
            raise
        return connection
