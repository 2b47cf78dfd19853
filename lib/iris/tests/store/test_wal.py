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


@pytest.mark.parametrize(("how", "left"), [(spoiled(0), 0), (spoiled(5), 5), (lambda data: data[: 32 + 4 * FRAME], 4)])
def test_the_index_tells_what_cannot_be_read(database: Path, how: Callable[[bytes], bytes], left: int) -> None:
    count = frames(database)
    change(database, how)
    assert wal_damage(database).endswith(f"-wal is damaged: {count - left} of its {count} pages cannot be read")


def test_without_an_index_commits_behind_a_gap_tell_of_it_but_not_one_alone(database: Path) -> None:
    """One may be what a loss of power cut off; and what was cut off behind the last leaves no trace."""
    count = frames(database)
    without_index(database)
    for number, is_told in ((count - 1, False), (count - 2, False), (count - 3, True), (5, True)):
        change(database, spoiled(number))
        assert ("is damaged" in wal_damage(database)) is is_told, number
    assert wal_damage(database).endswith(f"-wal is damaged: page 6 of {count} cannot be read, nor can what follows it")
    change(database, lambda data: data[: 32 + 4 * FRAME])
    assert wal_damage(database) == "", "nothing tells that there was more"


def test_an_index_that_is_not_whole_tells_nothing(database: Path) -> None:
    change(database, spoiled(5))
    for how in (lambda data: data[:99], lambda data: b"x" + data[1:], lambda data: bytes(len(data))):
        kept = database.with_name(database.name + "-shm").read_bytes()
        change(database, how, "-shm")
        assert "page 6 of" in wal_damage(database), "it is told by the log alone"
        change(database, lambda data, kept=kept: kept, "-shm")  # type: ignore[misc]
    other = b"8 others"
    change(database, lambda data: (data[:32] + other + data[40:48]) * 2 + data[96:], "-shm")
    change(database, lambda data: data[: 32 + 4 * FRAME])
    assert wal_damage(database) == "", "nor does that of another round of the log"


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
