"""Ended jobs, read beside the running controller: each call opens its own connection, in any thread."""

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from iris.domain.entities import Job
from iris.domain.errors import StorageUnavailable
from iris.domain.ids import JobId
from iris.domain.states import JobState
from iris.store.rows import JOB_COLUMNS, SpecReader, job_of

_ENDED: Final = int(JobState.SUCCEEDED)
_COLUMNS: Final = ", ".join(f"jobs.{name}" for name in JOB_COLUMNS)
_SELECT: Final = f"SELECT {_COLUMNS}, job_specs.spec, NULL FROM jobs JOIN job_specs USING (job_id)"
_BELOW: Final = "job_id > ? AND job_id < ?"
_LAST: Final = "\x7f"  # after every character of an id
_USER: Final = "substr(job_id, 2, instr(substr(job_id, 2), '/') - 1)"


class History:
    """Reads the committed jobs of a database, without their environment variables.

    Every method reads one snapshot. Raise StorageUnavailable if the database cannot be read.

    Args:
        database: The file.
    """

    def __init__(self, database: Path) -> None:
        self._uri = f"file:{quote(str(database))}?mode=ro"

    def newest(self, prefix: str, states: Collection[JobState], limit: int) -> list[Job]:
        """Return jobs, newest first.

        Args:
            prefix: Only this job (or user, "/ann") and its descendants; with a final "*", only jobs whose ids begin
                with it; empty for all.
            states: Only jobs in these states; empty for all.
            limit: Maximum number of jobs.
        """
        wanted, values = [], []
        if prefix.endswith("*"):
            wanted.append("job_id >= ? AND job_id < ?")
            values += [prefix[:-1], prefix[:-1] + _LAST]
        elif prefix:
            wanted.append(f"(job_id = ? OR {_BELOW})")
            values += [prefix, *_range(prefix)]
        if states:
            # As numbers: only then SQLite knows that an index of live jobs has all of them.
            wanted.append(f"state IN ({', '.join(str(int(state)) for state in states)})")
            if all(not state.is_terminal for state in states):
                wanted.append(f"state < {_ENDED}")
        where = f" WHERE {' AND '.join(wanted)}" if wanted else ""
        with self._connection() as connection:
            return _jobs(connection.execute(f"{_SELECT}{where} ORDER BY sequence DESC LIMIT ?", (*values, limit)))

    def counts_below(self, names: Iterable[JobId]) -> dict[JobId, dict[JobState, int]]:
        """Return the number of each job's descendants in each state, of jobs that have any."""
        found = {}
        with self._connection() as connection:
            for name in names:
                sql = f"SELECT state, count(*) FROM jobs WHERE {_BELOW} GROUP BY state"
                counts = {JobState(state): number for state, number in connection.execute(sql, _range(name))}
                if counts:
                    found[name] = counts
        return found

    def forgettable(self, old_ms: int, young_ms: int, most: int) -> list[JobId]:
        """Return the ended jobs to forget, each after its descendants.

        Args:
            old_ms: Jobs that ended before then (Unix ms) are not kept.
            young_ms: Jobs that ended before then are only kept while their user has at most `most` ended jobs.
            most: Number of ended jobs kept for each user, latest first.
        """
        ended = f"state >= {_ENDED} AND finished_at_ms < ?"
        order = "ORDER BY finished_at_ms, sequence"
        with self._connection() as connection:
            chosen = [
                JobId(row[0]) for row in connection.execute(f"SELECT job_id FROM jobs WHERE {ended} {order}", (old_ms,))
            ]
            sql = f"SELECT {_USER}, count(*) FROM jobs WHERE state >= {_ENDED} GROUP BY 1 HAVING count(*) > ?"
            for user, count in connection.execute(sql, (most,)).fetchall():
                sql = f"SELECT job_id FROM jobs WHERE {_BELOW} AND {ended} {order} LIMIT ?"
                rows = connection.execute(sql, (*_range(f"/{user}"), young_ms, count - most))
                chosen += [JobId(row[0]) for row in rows]
            return list(dict.fromkeys(_with_descendants(connection, chosen)))

    def names(self) -> Iterator[str]:
        """Yield the names of all jobs."""
        with self._connection() as connection:
            for row in connection.execute("SELECT job_id FROM jobs"):
                yield str(row[0])

    def unknown(self, names: Iterable[str]) -> list[JobId]:
        """Return the names that belong to no job."""
        with self._connection() as connection:
            sql = "SELECT 1 FROM jobs WHERE job_id = ?"
            return [JobId(name) for name in names if connection.execute(sql, (name,)).fetchone() is None]

    def unknown_in(self, shelf: Path) -> list[JobId]:
        """Return the names of a `LogShelf` that belong to no job."""
        if not shelf.exists():
            return []
        with self._connection() as connection:
            connection.execute("ATTACH ? AS shelf", (str(shelf),))
            sql = "SELECT DISTINCT job_id FROM shelf.files WHERE job_id NOT IN (SELECT job_id FROM jobs)"
            return [JobId(row[0]) for row in connection.execute(sql)]

    def digests(self) -> tuple[set[str], set[str]]:
        """Return the bundles and the callables that jobs name."""
        paths = ("$.bundle_digest", "$.entrypoint.payload_digest")
        with self._connection() as connection:
            bundles, callables = (
                {row[0] for row in connection.execute("SELECT DISTINCT json_extract(spec, ?) FROM job_specs", (path,))}
                for path in paths
            )
        return bundles - {None, ""}, callables - {None, ""}

    def numbered(self, sequences: Iterable[int]) -> list[Job]:
        """Return the jobs with these numbers."""
        with self._connection() as connection:
            rows = (connection.execute(f"{_SELECT} WHERE sequence = ?", (number,)).fetchone() for number in sequences)
            return _jobs(row for row in rows if row is not None)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self._uri, uri=True, isolation_level=None)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise StorageUnavailable(f"ended jobs cannot be read from {self._uri}: {error}") from error


def _range(name: str) -> tuple[str, str]:
    """Return the bounds of all names below a name. "0" follows "/"."""
    return f"{name}/", f"{name}0"


def _jobs(rows: Iterable[tuple[object, ...]]) -> list[Job]:
    specs = SpecReader()
    return [job_of(row, specs.read(JobId(str(row[0])), str(row[-2]), None)) for row in rows]


def _with_descendants(connection: sqlite3.Connection, chosen: Sequence[JobId]) -> Iterator[JobId]:
    for job_id in chosen:
        rows = connection.execute(f"SELECT job_id FROM jobs WHERE {_BELOW}", _range(job_id))
        below = [JobId(row[0]) for row in rows]
        yield from sorted(below, key=lambda name: -name.count("/"))
        yield job_id
