"""Moved pieces of a log are fetched a few at a time, each once, and never more than are allowed to wait."""

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from iris.controller.logs.remote import ReadAhead, RemotePieces
from iris.controller.logs.search import Search
from iris.controller.logs.store import LogStore
from iris.rpc.logfilter import LineChoice
from support.iris.logs import KEY, LIMIT, fill, numbered_lines, tend_all


class Together:
    """A storage that answers only when so many ask at a time."""

    def __init__(self, count: int) -> None:
        self.asked: list[str] = []
        self._barrier = threading.Barrier(count)

    def fetch(self, name: str) -> bytes | None:
        self.asked.append(name)
        self._barrier.wait(30)
        return name.encode()


def test_what_is_expected_is_fetched_at_once_and_only_once() -> None:
    storage = Together(3)
    ahead = ReadAhead(storage.fetch, width=3)
    ahead.expect(["a", "b", "c"])
    ahead.expect(["b"])
    assert [ahead.get(name) for name in "abc"] == [b"a", b"b", b"c"]
    assert sorted(storage.asked) == ["a", "b", "c"]
    ahead.close()


def test_no_more_are_fetched_ahead_than_may_wait() -> None:
    asked: list[str] = []

    def fetch(name: str) -> bytes | None:
        asked.append(name)
        return None if name == "gone" else name.encode()

    ahead = ReadAhead(fetch, width=1, most=2)
    ahead.expect(["a", "b", "c", "d"])
    assert ahead.get("b") == b"b"
    assert asked == ["a", "b"], "the others wait until they are asked for"
    ahead.expect(["gone"])
    assert ahead.get("gone") is None
    assert ahead.get("c") == b"c"
    ahead.close()


def test_what_the_storage_raises_is_raised_to_whoever_asks() -> None:
    def fetch(name: str) -> bytes | None:
        raise ConnectionError(f"no {name}")

    ahead = ReadAhead(fetch)
    ahead.expect(["a"])
    with pytest.raises(ConnectionError, match="no a"):
        ahead.get("a")
    ahead.close()


def test_a_log_is_read_through_with_its_next_pieces_on_their_way(tmp_path: Path) -> None:
    remote = RemotePieces(f"file://{tmp_path}/remote")
    store = LogStore(tmp_path / "logs", LIMIT)
    fill(store, 10_000)
    tend_all(store, remote)
    announced: list[str] = []
    fetched: list[str] = []

    def fetch(name: str) -> bytes | None:
        fetched.append(name)
        return remote.get(name)

    ahead = ReadAhead(fetch)

    def announce(names: Sequence[str]) -> None:
        announced.extend(names)
        ahead.expect(names)

    reader = LogStore(tmp_path / "logs", fetch=ahead.get, announce=announce)
    log = b"".join(data for _, data in Search(reader, LineChoice()).round([KEY], {}, last=True))
    assert log == numbered_lines(10_000)
    assert len(fetched) > 3
    assert sorted(fetched) == sorted(set(fetched)), "each once"
    assert len(set(fetched) - set(announced)) == 1, "all but the first were announced"
    ahead.close()
