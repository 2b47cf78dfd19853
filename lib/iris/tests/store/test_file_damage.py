"""What the form of a database's files tells, without opening it."""

import sqlite3
from pathlib import Path

import pytest

from iris.store.damage import (
    DATABASE_NAME,
    MOST_CHECKED_BYTES,
    DatabaseDamaged,
    content_damage,
    database_damage,
    file_damage,
    is_corruption,
)
from iris.store.db import connect
from rigging.errors import Conflict


@pytest.fixture
def database(tmp_path: Path) -> Path:
    connect(tmp_path).close()
    path = tmp_path / DATABASE_NAME
    assert (file_damage(path), database_damage(path)) == ("", "")
    return path


def test_a_database_that_is_gone_is_told_by_what_it_left(tmp_path: Path) -> None:
    path, wal = tmp_path / DATABASE_NAME, tmp_path / (DATABASE_NAME + "-wal")
    assert file_damage(path) == database_damage(path) == ""
    (tmp_path / "logs" / "ann" / "~0.0.log").mkdir(parents=True)
    wal.touch()
    assert file_damage(path) == "", "a directory is no log, and nothing is in an empty file"
    (tmp_path / "logs" / "ann" / "~0.1.log").touch()
    assert file_damage(path).startswith("the file is gone, but the logs of its jobs are in ")
    wal.write_bytes(b"x")
    assert file_damage(path) == f"the file is gone, but its write-ahead log {wal} is there"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda data: b"", "the file is empty (0 bytes)"),
        (lambda data: b"x" + data[1:], "it does not start like a database"),
        (lambda data: data[:10], "it does not start like a database"),
        (lambda data: data[:-1], "it is truncated: "),
        (lambda data: data + b"x", "it is truncated: "),
        (lambda data: data[:16] + b"\x00\x00" + data[18:], "it is truncated: "),
        (lambda data: data[:16] + b"\x01\x00" + data[18:], "it is truncated: "),
        (lambda data: data[:16] + b"\x02\x00" + data[18:], ""),
        (lambda data: data[:16] + b"\x00\x01" + data[18:], "it is truncated: "),
        (lambda data: (data[:16] + b"\x00\x01" + data[18:]).ljust(196_608, b"\x00"), ""),  # one: the largest
    ],
)
def test_the_form_of_the_file(database: Path, change, told: str) -> None:
    data = database.read_bytes()
    database.write_bytes(change(data))
    assert file_damage(database).startswith(told)
    assert bool(file_damage(database)) == bool(told)


def content_of(database: Path, most_bytes: int = MOST_CHECKED_BYTES) -> str:
    connection = sqlite3.connect(database)
    try:
        return content_damage(connection, database, most_bytes)
    finally:
        connection.close()


def test_a_database_of_something_else_has_none_of_the_tables_as_far_as_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / DATABASE_NAME
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE other (a)")
    connection.close()
    assert content_of(path) == database_damage(path) == "it has no tables of a controller"
    assert content_of(path, path.stat().st_size) == "it has no tables of a controller"
    assert content_of(path, path.stat().st_size - 1) == "", "a large one is not read as a whole"


def test_three_findings_are_shown_and_the_rest_is_counted(database: Path) -> None:
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.execute("CREATE TABLE much (a)")
    connection.executemany("INSERT INTO much VALUES (?)", [("x" * 3000,) for _ in range(60)])
    connection.commit()
    connection.close()
    data = bytearray(database.read_bytes())
    for page in range(len(data) // 4096 - 40, len(data) // 4096):
        data[page * 4096 : page * 4096 + 4096] = bytes([255]) * 4096
    database.write_bytes(data)
    found = content_of(database)
    assert found.count("; ") == 2
    assert " more" in found
    assert "***" not in found


def test_only_what_says_so_itself_is_corruption(tmp_path: Path) -> None:
    def raised(path: Path, query: str) -> sqlite3.Error:
        connection = sqlite3.connect(path)
        try:
            with pytest.raises(sqlite3.Error) as error:
                connection.execute(query)
        finally:
            connection.close()
        return error.value

    (tmp_path / "text").write_text("no database " * 100)
    assert is_corruption(raised(tmp_path / "text", "SELECT * FROM a"))
    assert not is_corruption(raised(tmp_path / "new", "SELECT * FROM a"))
    assert not is_corruption(sqlite3.Error("without a code"))


def test_the_message_says_what_helps(tmp_path: Path) -> None:
    place = tmp_path / "a state"
    told = DatabaseDamaged(place / DATABASE_NAME, "it was cut")
    assert isinstance(told, Conflict)
    assert (told.database, told.what) == (place / DATABASE_NAME, "it was cut")
    text = str(told)
    assert text.startswith(f"the database {place / DATABASE_NAME} is damaged: it was cut. Nothing was changed. ")
    assert f"`iris cluster controller restore --state-dir '{place}' --remote-state-dir URL` gets back" in text
    assert "move the directory aside" in text
    remote = str(DatabaseDamaged(place / DATABASE_NAME, "it was cut", "s3://b/x y"))
    assert f"restore --state-dir '{place}' --remote-state-dir 's3://b/x y'` gets the state back" in remote
