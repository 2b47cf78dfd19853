"""The journal: every commit as data, in the database until it is replicated.

A commit's own transaction writes its entry, so after a crash the journal contains exactly the unreplicated commits.
"""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from iris.store.db import schema_version
from iris.store.ops import Op, ops_to_json


@dataclass(frozen=True, slots=True)
class Entry:
    """A commit: its number, time (Unix ms), and ops as JSON."""

    sequence: int
    at_ms: int
    payload: str


class Journal:
    """Numbers and dates the commits of one generation. Use it in the store's thread, except for `uploaded`.

    Args:
        clock_ms: Returns Unix time in milliseconds; also dates the snapshots of these commits.
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
        """Continue from the database. With generation 0, stop replicating its history.

        Args:
            connection: The open database.
            generation: The generation of the leadership; 0 without a remote state.
            clock_ms: Returns Unix time in milliseconds.
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
        """Record that all commits up to this one are replicated. May be called in any thread."""
        self._uploaded = sequence
