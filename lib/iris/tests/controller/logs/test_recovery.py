import shutil
from pathlib import Path

import pytest

from iris.controller.logs.remote import RemotePiece, RemotePieces, missing_pieces, parse_pieces, recover_notes
from iris.controller.logs.store import LogKey, LogStore
from support.iris.logs import LIMIT, fill, numbered_lines, tend_all, told

KEY: LogKey = ("/ann/a/child", 0, 1)
OTHER: LogKey = ("/ann/forgotten", 0, 0)


@pytest.fixture
def remote(tmp_path: Path) -> RemotePieces:
    return RemotePieces(f"file://{tmp_path}/remote")


def store_in(tmp_path: Path, remote: RemotePieces) -> LogStore:
    return LogStore(tmp_path / "state" / "logs", LIMIT, fetch=remote.get)


def test_a_log_goes_on_where_its_moved_pieces_end_when_the_disk_is_lost(tmp_path: Path, remote: RemotePieces) -> None:
    store = store_in(tmp_path, remote)
    fill(store, 10_000, key=KEY)
    fill(store, 3000, key=OTHER)
    tend_all(store, remote)
    data = numbered_lines(10_000)
    shutil.rmtree(tmp_path / "state")
    again = store_in(tmp_path, remote)
    assert recover_notes(again, remote, lambda key: key == KEY) > 2
    assert 0 < again.size(KEY) < len(data), "what was newest was on the disk alone"
    assert told(again, KEY) == list(range(len(told(again, KEY)))), "all that was moved"
    again.append(KEY, 0, data)  # as the worker does, which has the whole of it
    assert told(again, KEY) == list(range(10_000))
    assert again.size(OTHER) == 0, "of jobs that there are not nothing is shown"
    assert recover_notes(again, remote, lambda key: True) == 0, "once is enough"


def test_a_state_whose_notes_are_there_stays_as_it_is(tmp_path: Path, remote: RemotePieces) -> None:
    store = store_in(tmp_path, remote)
    fill(store, 10_000, key=KEY)
    tend_all(store, remote)
    fill(store, 40_000, 10_000, KEY)  # beyond the limit: moved pieces are dropped, and not yet removed there
    assert list(store.trash.iterdir())
    before = told(store, KEY)
    assert recover_notes(store, remote, lambda key: True) == 0
    assert told(store_in(tmp_path, remote), KEY) == before


class Away(RemotePieces):
    """A storage that does not answer."""

    def names(self) -> list[str]:
        raise ConnectionError("the bucket is away")


def test_a_mute_storage_is_asked_again(tmp_path: Path, remote: RemotePieces, caplog: pytest.LogCaptureFixture) -> None:
    store = store_in(tmp_path, remote)
    fill(store, 10_000, key=KEY)
    tend_all(store, remote)
    shutil.rmtree(tmp_path / "state")
    assert recover_notes(store_in(tmp_path, remote), Away(remote.url), lambda key: True) == 0
    assert "cannot be looked for" in caplog.text
    assert "the bucket is away" in caplog.text
    assert recover_notes(store_in(tmp_path, remote), remote, lambda key: True) > 2


def test_a_remote_state_without_logs_has_none(tmp_path: Path, remote: RemotePieces) -> None:
    assert remote.names() == []
    assert recover_notes(store_in(tmp_path, remote), remote, lambda key: True) == 0


def test_only_pieces_of_logs_are_pieces() -> None:
    good = "logs/ann/a/~3.1.128-64.zst-0123abcd"
    names = [good, "logs/ann/a/~3.1.128-64.zst", "logs/ann/a/x-0123abcd", "journal/~3.1.0-64.zst-0123abcd", "logs/a"]
    assert list(parse_pieces(names)) == [RemotePiece(("/ann/a", 3, 1), 128, 64, good)]


def test_no_byte_is_taken_twice() -> None:
    def piece(start: int, size: int, name: str = "n") -> RemotePiece:
        return RemotePiece(KEY, start, size, name)

    moved_twice = [piece(0, 10, "b"), piece(0, 10, "a"), piece(10, 10)]
    assert missing_pieces(moved_twice, []) == [piece(0, 10, "a"), piece(10, 10)]
    assert missing_pieces([piece(0, 10), piece(5, 10), piece(10, 5)], []) == [piece(0, 10), piece(10, 5)]
    assert missing_pieces([piece(0, 10), piece(10, 10)], [(0, 3)]) == [piece(10, 10)]
