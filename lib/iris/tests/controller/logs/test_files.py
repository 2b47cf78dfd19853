import errno
import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from iris.controller.logs.files import LogFiles, LogLimits
from iris.controller.logs.names import LogFileName, exception_file_name, file_name, parse_name
from iris.controller.logs.packed import pack
from iris.controller.logs.pieces import LogPlace
from iris.controller.logs.store import LogStore
from iris.rpc.logformat import RECORD_OVERHEAD, Record, decode_all, encode

T = 1_790_000_000_000
KEY = ("/ann/a", 0, 0)
LINE = encode(False, T, b"x")
ROOM = LogLimits(2**30, lambda count: True)


def written(store: LogStore, log: bytes, rng: random.Random) -> list[Record]:
    """Append in pieces that cut records anywhere, following all the while; returns what the follower saw."""
    seen: list[Record] = []
    position = 0
    while position < len(log):
        piece = log[position : position + rng.randrange(1, 60_000)]
        position += len(piece)
        assert store.append(KEY, position - len(piece), piece) == position, "all of it counts as taken"
        if rng.random() < 0.2:
            seen += store.read(KEY, seen[-1].end if seen else 0)
    return seen + list(store.read(KEY, seen[-1].end if seen else 0))


def output(rng: random.Random, lines: int) -> bytes:
    return b"".join(encode(i % 3 == 0, T + i, b"line %06d " % i + b"x" * rng.randrange(200)) for i in range(lines))


def append_all(store: LogStore, log: bytes) -> None:
    begin = store.size(KEY)
    for position in range(0, len(log), 50_000):
        store.append(KEY, begin + position, log[position : position + 50_000])


def accounted(records: list[Record]) -> int:
    return sum(record.hole or len(record.data) + RECORD_OVERHEAD for record in records)


def sometimes(rng: random.Random) -> Callable[[int], bool]:
    return lambda count: rng.random() < 0.5


@pytest.mark.parametrize("seed", range(4))
def test_every_byte_is_either_read_or_counted_as_lost(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    limit, has_room = (2**20, lambda count: True) if seed % 2 else (2**30, sometimes(rng))
    log = output(rng, 12_000)
    whole = {record.data for record in decode_all(log)}
    store = LogStore(tmp_path, limit, has_room)
    followed = written(store, log, rng)
    assert accounted(followed) == len(log)
    assert [record.data for record in followed if record.hole and b" bytes of the log lost: " not in record.data] == []
    if seed % 2:
        assert sum(path.stat().st_size for path in tmp_path.rglob("~*")) <= limit
        assert followed[0].data.startswith(b"line 000000 ")
        assert next(store.read(KEY, 0)).data == followed[0].data, "the beginning is kept"
        assert followed[-1].data.startswith(b"line 011999 "), "and so is the newest"
    for reopened in (store, LogStore(tmp_path, limit, has_room)):
        records = list(reopened.read(KEY, 0))
        assert accounted(records) == len(log) == reopened.size(KEY)
        assert all(record.data in whole for record in records if not record.note)
        assert [record.at_ms for record in records] == sorted(record.at_ms for record in records)
        for count in (1, 50, 100_000):
            tail = [record.data for record in reopened.tail(KEY, count) if not record.note]
            intact = [record.data for record in records if not record.note]
            assert tail == intact[len(intact) - len(tail) :]


@pytest.mark.parametrize("seed", range(4))
def test_what_is_dropped_under_a_reader_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr("iris.rpc.logformat.READ_BYTES", 20_000)
    rng = random.Random(seed)
    store = LogStore(tmp_path, 2**20)
    log, more = output(rng, 6000), output(rng, 9000)
    append_all(store, log)
    size = store.size(KEY)
    reading = store.read(KEY, 0)
    records = [next(reading) for _ in range(rng.randrange(1, 3000))]
    append_all(store, more)
    records += reading
    holes = [record for record in records if record.hole]
    assert holes
    assert all(b" bytes of the log lost: " in record.data for record in holes)
    assert accounted(records) == size


def test_no_space_is_no_error_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LogStore(tmp_path)
    first, second, third = (encode(False, T + i, b"line") for i in range(3))
    store.append(KEY, 0, first)

    def full(*args: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.write", full)
        assert store.append(KEY, len(first), second) == 2 * len(first)
    store.append(KEY, 2 * len(first), third)
    for reader in (store, LogStore(tmp_path)):
        assert [record.hole or record.at_ms for record in reader.read(KEY, 0)] == [T, len(second), T + 2]


def test_a_damaged_file_hides_no_other_record(tmp_path: Path) -> None:
    store = LogStore(tmp_path)
    log = output(random.Random(3), 1000)
    store.append(KEY, 0, log)
    (path,) = tmp_path.rglob("~*")
    content = bytearray(path.read_bytes())
    content[20_000:24_096] = bytes(4096)
    path.write_bytes(content)
    records = list(LogStore(tmp_path).read(KEY, 0))
    assert [record.note for record in records].count(True) == 1
    assert accounted(records) == len(log)
    assert len(LogStore(tmp_path).tail(KEY, 100)) == 100


@pytest.mark.parametrize(
    ("limit", "file_bytes"),
    [(1, 65_536), (2**20, 65_536), (2**20 + 16, 65_537), (2**24 - 16, 2**20 - 1), (2**24, 2**20), (2**40, 2**20)],
)
def test_a_log_is_a_few_files_neither_tiny_nor_huge(limit: int, file_bytes: int) -> None:
    limits = LogLimits(limit, lambda count: True)
    assert (limits.file_bytes, limits.spare()) == (file_bytes, False)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("~3.1.log", (3, 1, 0)),
        ("~3.1.77.log", (3, 1, 77)),
        ("~3.log", None),
        ("~3.1.7.7.log", None),
        ("~3.x.log", None),
        ("3.1.log", None),
        ("~3.1.exception", None),
        ("", None),
    ],
)
def test_the_name_of_a_file_says_whose_it_is_and_where_it_begins(name: str, found: tuple[int, ...] | None) -> None:
    parsed = parse_name(name)
    assert (parsed and parsed[:3]) == found
    if found is not None:
        assert file_name(*found) == name


class TestPieces:
    """A log whose middle was dropped: three lines, a hole as long as one, and two lines."""

    @pytest.fixture
    def log(self, tmp_path: Path) -> LogFiles:
        log = LogFiles(LogPlace(tmp_path / "logs", 0, 0))
        for number in (1, 2, 3, None, 5, 6):
            if number is None:
                log.drop(len(LINE))
            else:
                log.append(memoryview(encode(False, T + number, b"x")), ROOM)
        return log

    def test_what_is_told_from_a_place_or_a_time_on_and_of_the_end(self, log: LogFiles) -> None:
        def told(records: Iterable[Record]) -> list[int]:
            return [record.hole or record.at_ms - T for record in records]

        gap = len(LINE)
        assert (log.size, log.stored, log.complete_size()) == (6 * gap, 5 * gap, 6 * gap)
        for reader in (log, LogFiles.found(log.place, [LogFileName(0, 0, start) for start in (0, 4 * gap)])):
            from_place = [told(reader.read(begin * gap, 0)) for begin in range(7)]
            assert from_place[:4] == [[1, 2, 3, gap, 5, 6], [2, 3, gap, 5, 6], [3, gap, 5, 6], [gap, 5, 6]]
            assert from_place[4:] == [[5, 6], [6], []]
        from_time = [told(log.read(0, T + since)) for since in (3, 4, 5, 6)]
        assert from_time == [[3, gap, 5, 6], [gap, 5, 6], [gap, 5, 6], [6]], "the hole, to who asks for what came after"
        assert [record.at_ms - T for record in log.read(0, T + 4)] == [4, 5, 6], "it is no older than was asked for"

    @pytest.mark.parametrize("further", [(), (None,), (None, 9), (7, None, 9, 10)])
    @pytest.mark.parametrize("is_packed", [False, True])
    def test_the_end_is_the_same_wherever_reading_begins(self, log: LogFiles, further: Any, is_packed: bool) -> None:
        for number in further:
            if number is None:
                log.drop(len(LINE))
            else:
                log.append(memoryview(encode(False, T + number, b"x")), ROOM)
        for start, size in log.finished() if is_packed else ():
            log.place.packed(start, size).write_bytes(pack(log.place.raw(start).read_bytes()))
            log.place.raw(start).unlink()
        for since in (0, *range(T, T + 12)):
            whole = list(log.read(0, since))
            for lines in range(1, 12):
                assert log.tail(lines, since) == whole[-lines:], (lines, since - T)
            assert log.tail(0, since) == whole

    def test_an_empty_file_says_how_long_it_is_until_the_log_goes_on(self, log: LogFiles) -> None:
        log.drop(10)
        log.drop(20)
        names = {path.name for path in log.place.directory.iterdir()}
        end = 6 * len(LINE) + 30
        assert names == {"~0.0.log", f"~0.0.{4 * len(LINE)}.log", f"~0.0.{end}.log"}, "one for both"
        assert LogFiles.found(log.place, [LogFileName(0, 0, start) for start in (end, 0, 4 * len(LINE))]).size == end
        log.append(memoryview(LINE), ROOM)
        assert (log.place.directory / f"~0.0.{end}.log").read_bytes() == LINE
        assert [record.hole for record in log.read(6 * len(LINE), 0)] == [30, 0]

    def test_nothing_of_it_stays_open(self, log: LogFiles) -> None:
        before = len(os.listdir("/proc/self/fd"))
        log.append(memoryview(LINE), ROOM)
        log.drop(10)
        assert len(list(log.read(0, 0))) == 8
        assert len(log.tail(100, 0)) == 8
        assert log.complete_size() == log.size
        assert len(os.listdir("/proc/self/fd")) == before

    def test_all_of_it_goes(self, log: LogFiles) -> None:
        (log.place.directory / exception_file_name(0, 0)).touch()
        (log.place.directory / "~0.1.log").touch()
        log.remove()
        assert [path.name for path in log.place.directory.iterdir()] == ["~0.1.log"]
        log.remove()
        assert log.files == []

    def test_on_a_full_disk_the_newest_takes_the_place_of_older_files_but_the_first(self, log: LogFiles) -> None:
        log.drop(5)
        log.append(memoryview(LINE), ROOM)
        log.append(memoryview(LINE), LogLimits(2**30, lambda count: False))
        assert [size // len(LINE) for _, size in log.files] == [3, 2], "what was in the middle made room"
        assert not (log.place.directory / f"~0.0.{4 * len(LINE)}.log").exists()
        assert log.stored == 5 * len(LINE)
        log.append(memoryview(LINE), LogLimits(2**30, lambda count: False))
        assert (log.stored, log.size) == (5 * len(LINE), 9 * len(LINE) + 5), "now it is the new that is dropped"

    @pytest.mark.parametrize(("is_note", "kept"), [(True, True), (False, False)])
    def test_a_note_is_worth_a_few_bytes_of_the_reserve(self, log: LogFiles, is_note: bool, kept: bool) -> None:
        asked: list[bool] = []
        data = encode(False, T, b"lost", note=True) if is_note else LINE
        log.append(memoryview(data), LogLimits(2**30, lambda count: False, lambda: asked.append(True) is None))
        assert (log.stored > 5 * len(LINE), bool(asked)) == (kept, kept)
