"""What is owed is kept: in files, or in the database."""

from collections.abc import Callable
from pathlib import Path

import pytest

from iris.controller.notices.debts import FileDebts, StoredDebts
from iris.domain.errors import StorageUnavailable
from iris.store.store import Store


class Turns:
    """A loop whose turns a test makes."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def soon(self, work: Callable[[], None]) -> None:
        self.due.append(work)

    def turn(self) -> None:
        due, self.due = self.due, []
        for work in due:
            work()


def test_files_come_and_go(tmp_path: Path) -> None:
    debts = FileDebts(tmp_path / "notices")
    assert debts.names() == set()
    for name in ("a", "a", "b"):
        debts.owe(name)
    debts.settle("b")
    debts.settle("never owed")
    assert FileDebts(tmp_path / "notices").names() == {"a"}


def test_rows_come_and_go_and_files_of_before_are_taken_up(tmp_path: Path) -> None:
    files, turns = FileDebts(tmp_path / "notices"), Turns()
    files.owe("old")
    store = Store.open(tmp_path / "state")
    debts = StoredDebts(store, turns.soon, files)
    assert debts.names() == {"old"}
    for name in ("a", "a", "b", "short"):
        debts.owe(name)
    debts.settle("short")
    assert store.load_notices() == []
    turns.turn()
    assert store.load_notices() == ["a", "b"]
    debts.settle("b")
    debts.settle("old")
    debts.flush()
    turns.turn()
    assert StoredDebts(store, turns.soon, files).names() == {"a"}
    store.close()


def test_what_cannot_be_written_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class FullDisk:
        def save_notices(self, owed: object, settled: object) -> None:
            raise StorageUnavailable("iris.db: disk is full")

        def load_notices(self) -> list[str]:
            return []

    debts = StoredDebts(FullDisk(), Turns().soon, FileDebts(tmp_path))
    debts.owe("a")
    debts.flush()
    assert "a notice is only kept in memory, and is lost with this controller: iris.db: disk is full" in caplog.text
