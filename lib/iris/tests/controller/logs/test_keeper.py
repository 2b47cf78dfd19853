"""Packing and moving: every record is read the same before, meanwhile and after, whatever fails in between."""

import itertools
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import ClassVar

import pytest

from fray.testing.waiting import eventually
from iris.controller.logs.files import LogFiles
from iris.controller.logs.keeper import Piece
from iris.controller.logs.pieces import LogPlace, PackedReader, PieceMovedError, RawPiece
from iris.controller.logs.remote import RemotePieces
from iris.controller.logs.store import LogStore
from support.iris.logs import KEY, LIMIT, T, fill, keeper_of, numbered_lines, tend_all, told


def forms(root: Path) -> set[str]:
    return {path.suffix for path in root.rglob("~*")}


@pytest.mark.parametrize("is_moved", [False, True])
def test_what_is_packed_or_moved_reads_as_before_also_for_who_is_reading(tmp_path: Path, is_moved: bool) -> None:
    remote = RemotePieces(f"file://{tmp_path}/remote")
    store = LogStore(tmp_path / "logs", LIMIT, fetch=remote.get)
    fill(store, 10_000)
    before = sum(path.stat().st_size for path in tmp_path.rglob("~*"))
    following = store.read(KEY, 0)
    seen = [next(following) for _ in range(3000)]
    tend_all(store, remote if is_moved else None)
    seen += following
    assert [int(record.data.split()[1]) for record in seen] == list(range(10_000))
    assert sum(path.stat().st_size for path in tmp_path.rglob("~*")) < before / 3
    for reader in (store, LogStore(tmp_path / "logs", LIMIT, fetch=remote.get)):
        assert told(reader) == list(range(10_000))
        assert [int(record.data.split()[1]) for record in reader.tail(KEY, 3)] == [9997, 9998, 9999]
        assert reader.size(KEY) == len(numbered_lines(10_000))


class CountedReads(LogPlace):
    """Notes how many bytes of packed pieces are read."""

    counted: ClassVar[list[int]] = []

    def open(self, start: int, size: int) -> RawPiece | PackedReader | None:
        path = self.packed(start, size)
        if not path.exists():
            return super().open(start, size)
        data = path.read_bytes()

        def read(offset: int, count: int) -> bytes:
            self.counted.append(count)
            return data[offset : offset + count]

        return PackedReader(read)


def test_of_a_packed_log_only_what_is_of_the_wanted_time_is_read(tmp_path: Path) -> None:
    # A page that follows a log asks for what comes after its last line; all before would hold up the controller.
    store = LogStore(tmp_path / "logs", LIMIT)
    fill(store, 10_000)
    store.append(KEY, store.size(KEY), numbered_lines(300, 2000))  # a clock that was set back
    data = numbered_lines(10_000)
    for place in range(0, len(data), 20_000):  # as a worker that is behind sends it: files begin within records
        store.append(KEY, store.size(KEY), data[place : place + 20_000])
    plain = list(store.read(KEY, 0))
    tend_all(store)
    log = store.log(KEY)
    counting = CountedReads(log.place.directory, log.place.index, log.place.attempt)
    for since in (1, T, T + 2200, T + 9900, T + 50_000):
        wanted = [record for record in plain if record.at_ms >= since]
        for start in (0, plain[2500].end, plain[15_000].end):
            found = LogFiles(counting, list(log.files), log.size, log.stored).read(start, since)
            assert [(record.end, record.data) for record in found] == [
                (record.end, record.data) for record in wanted if record.end > start
            ]
    counting.counted.clear()
    assert list(LogFiles(counting, list(log.files), log.size, log.stored).read(0, T + 50_000)) == []
    assert 0 < sum(counting.counted) < sum(path.stat().st_size for path in tmp_path.rglob("*.zst")) / 10


def test_a_log_that_was_packed_to_its_end_goes_on_in_a_file_of_its_own_and_a_small_one_stays(tmp_path: Path) -> None:
    store, small = LogStore(tmp_path / "logs", LIMIT), ("/ann/small", 0, 0)
    keeper = keeper_of(store)
    keeper.start()
    fill(store, 10, key=small)
    list(store.settling("/ann/small"))
    fill(store, 2000)
    list(store.settling("/ann/a"))
    eventually(lambda: forms(tmp_path / "logs/ann/a") == {".zst"}, "all of it is packed")
    fill(store, 1)
    keeper.close()
    for reader in (store, LogStore(tmp_path / "logs", LIMIT)):
        assert told(reader) == [*range(2000), 0]
    assert forms(tmp_path / "logs/ann/small") == {".log"}


def test_what_is_moved_is_read_by_those_who_can_fetch(tmp_path: Path) -> None:
    remote = RemotePieces(f"file://{tmp_path}/remote")
    store = LogStore(tmp_path / "logs", LIMIT)
    fill(store, 10_000)
    tend_all(store, remote)
    assert forms(tmp_path / "logs") == {".moved", ".log"}
    with pytest.raises(PieceMovedError):
        told(store)
    assert told(LogStore(tmp_path / "logs", LIMIT, fetch=remote.get)) == list(range(10_000))
    assert [int(record.data.split()[1]) for record in store.tail(KEY, 2)] == [9998, 9999], "what is newest is here"


def test_what_is_forgotten_or_dropped_is_removed_from_the_remote_state_too(tmp_path: Path) -> None:
    remote = RemotePieces(f"file://{tmp_path}/remote")
    store = LogStore(tmp_path / "logs", LIMIT)
    fill(store, 10_000)
    tend_all(store, remote)
    held = len([path for path in (tmp_path / "remote").rglob("*") if path.is_file()])
    fill(store, 40_000)  # beyond the limit: pieces in the middle are dropped
    keeper = keeper_of(store, remote)
    keeper.start()
    eventually(lambda: not list((tmp_path / "logs-trash").iterdir()), "the dropped ones are removed")
    store.remove("/ann/a")
    keeper.close(10)
    assert held > 3
    tend_all(store, remote)
    again = keeper_of(store, remote)
    again.start()
    eventually(lambda: not [p for p in (tmp_path / "remote").rglob("*") if p.is_file()], "nothing is left there")
    again.close(10)


class Refusing(RemotePieces):
    """A storage that refuses so many times."""

    def __init__(self, url: str, times: int) -> None:
        super().__init__(url)
        self.times = times

    def put(self, name: str, data: bytes) -> None:
        self.times -= 1
        if self.times >= 0:
            raise ConnectionError("the bucket is away")
        super().put(name, data)


def test_a_refusing_storage_is_asked_again_and_none_is_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    remote = Refusing(f"file://{tmp_path}/remote", 25)
    store = LogStore(tmp_path / "logs", LIMIT)
    keeper = keeper_of(store, remote)
    keeper.start()
    fill(store, 10_000)
    eventually(lambda: ".zst" not in forms(tmp_path / "logs") and remote.times < 0, "all is moved in the end")
    keeper.close(10)
    assert "the bucket is away" in caplog.text
    assert told(LogStore(tmp_path / "logs", LIMIT, fetch=remote.get)) == list(range(10_000))


def test_a_storage_that_hangs_holds_up_nobody(tmp_path: Path) -> None:
    hanging = threading.Event()

    class Hanging(RemotePieces):
        def put(self, name: str, data: bytes) -> None:
            hanging.wait(60)
            raise ConnectionError("it never answered")

    store = LogStore(tmp_path / "logs", LIMIT)
    keeper = keeper_of(store, Hanging(f"file://{tmp_path}/remote"))
    keeper.start()
    fill(store, 10_000)
    assert told(store) == list(range(10_000))
    keeper.close(0.01)
    hanging.set()
    assert told(LogStore(tmp_path / "logs", LIMIT)) == list(range(10_000))


CRASHING = """
import os, sys
from pathlib import Path
from iris.controller.logs.keeper import LogKeeper, leftovers
from iris.controller.logs.remote import RemotePieces
from iris.controller.logs.store import LogStore
root, remote, die_at = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
calls = 0
def watched(event, arguments):
    global calls
    if event in ("open", "os.rename", "os.remove") and str(root.parent) in str(arguments[0]):
        calls += 1
        if calls == die_at:
            os.kill(os.getpid(), 9)
sys.addaudithook(watched)
store = LogStore(root, 2**21)
keeper = LogKeeper(store, RemotePieces(remote), lambda call: call())
for piece in leftovers(root):
    keeper.tend(piece)
"""


@pytest.mark.process
@pytest.mark.parametrize("share", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_killed_at_any_step_nothing_is_lost_or_told_twice(tmp_path: Path, share: int) -> None:
    """Each run dies at a later call that touches a file, over what the former runs have left."""
    store = LogStore(tmp_path / "logs", LIMIT)
    fill(store, 4000)
    remote = RemotePieces(f"file://{tmp_path}/remote")
    for step in itertools.count(1, 1 if share else 4):
        command = [sys.executable, "-c", CRASHING, str(tmp_path / "logs"), remote.url, str(step)]
        code = subprocess.run(command, check=False).returncode
        reader = LogStore(tmp_path / "logs", LIMIT, fetch=remote.get)
        assert told(reader) == list(range(4000)), f"after a death at step {step}"
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert forms(tmp_path / "logs") == {".log", ".moved"}
    assert not list((tmp_path / "logs").rglob(".marin-tmp*"))


def test_what_a_crash_left_twice_is_put_right(tmp_path: Path) -> None:
    store = LogStore(tmp_path / "logs", LIMIT)
    fill(store, 6000)
    copies = {path: path.read_bytes() for path in tmp_path.rglob("~*.log")}
    tend_all(store)
    for path, data in copies.items():
        path.write_bytes(data)
    assert told(LogStore(tmp_path / "logs", LIMIT)) == list(range(6000))
    keeper_of(store).tend(Piece(("/ann/a", 0, 0), 0, 10))  # of another size: it went on, and is not finished
    tend_all(LogStore(tmp_path / "logs", LIMIT))
    names = [path.name for path in tmp_path.rglob("~*")]
    assert len(names) == len(copies), "each piece is there once"
    assert told(LogStore(tmp_path / "logs", LIMIT)) == list(range(6000))
