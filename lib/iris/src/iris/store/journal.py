"""The journal: every commit as data, in the database until it is replicated.

It is written in the commit's own transaction, so after a crash it contains exactly what still has to be replicated.
"""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from iris.store.db import schema_version
from iris.store.ops import Op, ops_to_json


@dataclass(frozen=True, slots=True)
class Entry:
    """A commit: its number, Unix ms, and its ops as JSON."""

    sequence: int
    at_ms: int
    payload: str


class Journal:
    """Number and date the commits of one generation. Used in the store's thread, except for `uploaded`.

    Args:
        clock_ms: Unix time in milliseconds, which also dates the snapshots of these commits.
    """

    def __init__(self, sequence: int, schema: int, first_waiting: int, clock_ms: Callable[[], int]) -> None:
        self.sequence = sequence
        self.clock_ms = clock_ms
        self.first_waiting = first_waiting  # the first commit that was not known to be off the machine; 0: none
        self.on_commit: Callable[[Entry], None] | None = None
        self._schema = schema
        self._uploaded = 0
        self._removed = 0

    @classmethod
    def begin(cls, connection: sqlite3.Connection, generation: int, clock_ms: Callable[[], int]) -> "Journal | None":
        """Continue from the database. With generation 0, leave the replicated history.

        Args:
            connection: The open database.
            generation: The leadership's generation; 0 without one.
            clock_ms: Unix time in milliseconds.
        """
        if not generation:
            connection.execute("UPDATE replication SET generation = 0 WHERE generation != 0")
            # Not without need: clearing an empty table writes a page, for which there may be no room.
            if connection.execute("SELECT 1 FROM journal LIMIT 1").fetchone():
                connection.execute("DELETE FROM journal")
            return None
        connection.execute("UPDATE replication SET generation = ? WHERE generation != ?", (generation, generation))
        (sequence,) = connection.execute("SELECT sequence FROM replication").fetchone()
        (first,) = connection.execute("SELECT min(sequence) FROM journal").fetchone()
        return cls(sequence, schema_version(connection), first or 0, clock_ms)

    def write(self, connection: sqlite3.Connection, ops: Sequence[Op]) -> Entry:
        """Record a commit inside its transaction, and drop replicated ones."""
        entry = Entry(self.sequence + 1, self.clock_ms(), ops_to_json(ops, self._schema))
        connection.execute("UPDATE replication SET sequence = ?", (entry.sequence,))
        connection.execute("INSERT INTO journal VALUES (?, ?, ?)", (entry.sequence, entry.at_ms, entry.payload))
        if self._uploaded > self._removed:
            connection.execute("DELETE FROM journal WHERE sequence <= ?", (self._uploaded,))
            self._removed = self._uploaded
        return entry

    def committed(self, entry: Entry) -> None:
        """Record that the transaction of `entry` is on disk."""
        self.sequence = entry.sequence
        if self.on_commit is not None:
            self.on_commit(entry)

    def uploaded(self, sequence: int) -> None:
        """Record that everything up to this commit is replicated. May be called in any thread."""
        self._uploaded = sequence
