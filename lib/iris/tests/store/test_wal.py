"""Write-ahead logs that were cut or damaged are told from those of which a crash cut off the last commit."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from iris.store.wal import wal_damage

FRAME = 24 + 4096


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database as a killed process leaves it: 20 commits, of which all are in the log."""
    place = tmp_path_factory.mktemp("wal")
    connection = sqlite3.connect(place / "live.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    connection.execute("CREATE TABLE a (b)")
    for number in range(19):
        connection.execute("INSERT INTO a VALUES (?)", (f"{number}" * 500,))
    (place / "left").mkdir()
    for suffix in ("", "-wal", "-shm"):
        shutil.copy(place / f"live.db{suffix}", place / "left" / f"a.db{suffix}")
    connection.close()
    return place / "left"


@pytest.fixture
def database(killed: Path, tmp_path: Path) -> Path:
    shutil.copytree(killed, tmp_path / "state")
    assert wal_damage(tmp_path / "state" / "a.db") == ""
    return tmp_path / "state" / "a.db"


def change(database: Path, how: Callable[[bytes], bytes], suffix: str = "-wal") -> None:
    path = database.with_name(database.name + suffix)
    path.write_bytes(how(path.read_bytes()))


def spoiled(number: int) -> Callable[[bytes], bytes]:
    """One byte of a page is another."""
    at = 32 + number * FRAME + 24 + 100

    def spoil(data: bytes) -> bytes:
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    return spoil


def without_index(database: Path) -> None:
    database.with_name(database.name + "-shm").unlink()


def frames(database: Path) -> int:
    return (database.with_name(database.name + "-wal").stat().st_size - 32) // FRAME


def test_without_a_log_nothing_is_wrong_unless_commits_were_in_it_alone(database: Path) -> None:
    count = frames(database)
    wal = database.with_name(database.name + "-wal")
    wal.unlink()
    assert wal_damage(database) == f"{wal} is gone or empty, and {count} pages of commits were in it alone"
    wal.write_bytes(b"x" * 32)
    assert "is gone or empty" in wal_damage(database)
    without_index(database)
    assert wal_damage(database) == ""


@pytest.mark.parametrize("at", [0, 8, 20, 26])
def test_a_damaged_beginning_is_told(database: Path, at: int) -> None:
    change(database, lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    assert "the beginning of " in wal_damage(database)
    assert "so none of the commits in it can be read" in wal_damage(database)


@pytest.mark.parametrize("number", [0, 5])
def test_a_page_before_the_last_commit_that_cannot_be_read_is_told_by_the_index(database: Path, number: int) -> None:
    count = frames(database)
    change(database, spoiled(number))
    assert wal_damage(database).endswith(f"-wal is damaged: {count - number} of its {count} pages cannot be read")


def test_a_log_that_was_cut_is_told_by_the_index(database: Path) -> None:
    count = frames(database)
    change(database, lambda data: data[: 32 + 4 * FRAME])
    assert wal_damage(database).endswith(f"-wal is damaged: {count - 4} of its {count} pages cannot be read")
    without_index(database)
    assert wal_damage(database) == "", "nothing tells that there was more"


def test_without_an_index_commits_behind_a_gap_tell_of_it(database: Path) -> None:
    count = frames(database)
    without_index(database)
    change(database, spoiled(5))
    found = wal_damage(database)
    assert found.endswith(f"-wal is damaged: page 6 of {count} cannot be read, nor can what follows it")


def test_one_commit_behind_a_gap_may_be_what_a_loss_of_power_cut_off(database: Path) -> None:
    count = frames(database)
    without_index(database)
    change(database, spoiled(count - 1))
    assert wal_damage(database) == ""
    change(database, spoiled(count - 2))
    assert wal_damage(database) == ""
    change(database, spoiled(count - 3))
    assert "is damaged" in wal_damage(database)


def test_an_index_that_is_not_whole_tells_nothing(database: Path) -> None:
    change(database, spoiled(5))
    for how in (lambda data: data[:99], lambda data: b"x" + data[1:], lambda data: bytes(len(data))):
        kept = database.with_name(database.name + "-shm").read_bytes()
        change(database, how, "-shm")
        assert "page 6 of" in wal_damage(database), "it is told by the log alone"
        change(database, lambda data, kept=kept: kept, "-shm")  # type: ignore[misc]


def test_frames_of_an_earlier_round_of_the_log_are_no_commits(database: Path) -> None:
    """A log that begins anew is written over the old one, whose end stays behind it."""
    without_index(database)

    def with_other_salt(data: bytes) -> bytes:
        changed = bytearray(data)
        for number in range(5, frames(database)):
            start = 32 + number * FRAME + 8
            changed[start : start + 8] = b"8 others"
        return bytes(changed)

    change(database, with_other_salt)
    assert wal_damage(database) == ""


def test_an_index_of_another_round_of_the_log_tells_nothing_of_this_one(database: Path) -> None:
    def of_another(data: bytes) -> bytes:
        head = data[:32] + b"8 others" + data[40:48]
        return head + head + data[96:]

    change(database, of_another, "-shm")
    change(database, lambda data: data[: 32 + 4 * FRAME])
    assert wal_damage(database) == ""
