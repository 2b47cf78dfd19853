import sqlite3

from iris.store.db import schema_version
from iris.store.journal import Entry, Journal
from iris.store.ops import Delete, ops_of_json


def begun(connection: sqlite3.Connection, generation: int = 3) -> Journal:
    journal = Journal.begin(connection, generation, lambda: 1234)
    assert journal is not None
    return journal


def commit(journal: Journal, connection: sqlite3.Connection, word: str = "x") -> Entry:
    connection.execute("BEGIN")
    entry = journal.write(connection, [Delete("endpoints", [word])])
    connection.execute("COMMIT")
    journal.committed(entry)
    return entry


def waiting(connection: sqlite3.Connection) -> list[int]:
    return [row[0] for row in connection.execute("SELECT sequence FROM journal ORDER BY 1")]


def replication(connection: sqlite3.Connection) -> tuple[int, int]:
    generation, sequence = connection.execute("SELECT generation, sequence FROM replication").fetchone()
    return generation, sequence


def test_commits_are_numbered_dated_and_kept(connection: sqlite3.Connection) -> None:
    journal = begun(connection)
    assert (journal.sequence, journal.first_waiting) == (0, 0)
    first, second = commit(journal, connection, "a"), commit(journal, connection, "b")
    assert (first.sequence, second.sequence, first.at_ms, journal.sequence) == (1, 2, 1234, 2)
    assert ops_of_json(second.payload) == (schema_version(connection), [Delete("endpoints", ["b"])])
    assert replication(connection) == (3, 2)
    rows = connection.execute("SELECT sequence, at_ms, payload FROM journal ORDER BY 1").fetchall()
    assert [Entry(*row) for row in rows] == [first, second]


def test_a_commit_that_is_taken_back_takes_no_number_and_is_told_to_nobody(connection: sqlite3.Connection) -> None:
    journal = begun(connection)
    heard: list[Entry] = []
    journal.on_commit = heard.append
    first = commit(journal, connection)
    connection.execute("BEGIN")
    journal.write(connection, [])
    connection.execute("ROLLBACK")
    assert heard == [first], "who listens hears of a commit once it is on disk"
    assert commit(journal, connection).sequence == 2
    assert waiting(connection) == [1, 2]


def test_what_is_off_the_machine_goes_with_the_next_commit(connection: sqlite3.Connection) -> None:
    journal = begun(connection)
    for _ in range(3):
        commit(journal, connection)
    journal.uploaded(2)
    assert waiting(connection) == [1, 2, 3]
    commit(journal, connection)
    assert waiting(connection) == [3, 4]
    connection.execute("INSERT INTO journal VALUES (1, 0, '')")
    commit(journal, connection)
    assert waiting(connection) == [1, 3, 4, 5], "what was removed once is not looked for at each commit"


def test_the_next_process_goes_on_from_what_waits(connection: sqlite3.Connection) -> None:
    journal = begun(connection)
    for _ in range(3):
        commit(journal, connection)
    journal.uploaded(1)
    commit(journal, connection)
    later = begun(connection, 4)
    assert (later.sequence, later.first_waiting) == (4, 2)
    assert replication(connection) == (4, 4)
    assert commit(later, connection).sequence == 5


def test_without_a_copy_elsewhere_there_is_no_journal_and_the_history_is_left(connection: sqlite3.Connection) -> None:
    commit(begun(connection), connection)
    assert Journal.begin(connection, 0, lambda: 0) is None
    assert waiting(connection) == []
    assert replication(connection) == (0, 1)
    assert Journal.begin(connection, 0, lambda: 0) is None
