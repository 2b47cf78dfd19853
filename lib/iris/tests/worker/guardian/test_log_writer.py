import errno
import os
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from iris.rpc.logformat import Record, decode_all
from iris.worker.output.log_room import punch, stored_bytes
from iris.worker.output.log_writer import PIECE_BYTES, LineSplitter, LogWriter

LINE = b"x" * 999 + b"\n"
FULL = "no space left on the worker's disk"
BROKEN = "it cannot be written on the worker's disk"


def joined(records: Iterable[Record]) -> bytes:
    return b"".join(record.data + (b"" if record.partial else b"\n") for record in records)


FLUSH, CLOSE = "flush", "close"
FITS = b"x" * PIECE_BYTES


@pytest.mark.parametrize(
    "steps",
    [
        # What is fed, or done; the records that come of it, "…" behind those that are partial.
        [(b"one\ntwo\nthr", [b"one", b"two"]), (b"ee\n", [b"three"]), (CLOSE, [])],
        [(b"50%", []), (FLUSH, [b"50%\xe2\x80\xa6"]), (FLUSH, []), (b"\nnext\n", [b"", b"next"]), (CLOSE, [])],
        [(b"no newline", []), (CLOSE, [b"no newline"]), (CLOSE, [])],
        [(b"prompt> ", []), (FLUSH, [b"prompt> \xe2\x80\xa6"]), (CLOSE, [b""]), (CLOSE, [])],
        [(FITS + b"\n", [FITS]), (FITS, []), (b"yz", [FITS + b"\xe2\x80\xa6"]), (CLOSE, [b"yz"]), (CLOSE, [])],
        [(FITS + b"y", [FITS + b"\xe2\x80\xa6"]), (b"\n", [b"y"]), (CLOSE, [])],
        [(FITS + b"y", [FITS + b"\xe2\x80\xa6"]), (FLUSH, [b"y\xe2\x80\xa6"]), (CLOSE, [b""]), (CLOSE, [])],
    ],
    ids=["lines", "flushed", "no end", "flushed, no end", "long, no end", "long", "long, flushed, no end"],
)
def test_lines_are_records_and_long_or_open_ones_partial(steps: list[tuple[bytes | str, list[bytes]]]) -> None:
    splitter = LineSplitter(is_stderr=True)
    for what, expected in steps:
        if isinstance(what, bytes):
            data = splitter.feed(what, 5)
        else:
            data = splitter.flush(5) if what == FLUSH else splitter.close(5)
        records = list(decode_all(data))
        assert [record.data + (b"\xe2\x80\xa6" if record.partial else b"") for record in records] == expected
        assert all(record.is_stderr for record in records)


def test_long_lines_come_in_pieces_that_join_to_the_line() -> None:
    splitter = LineSplitter(False)
    line = bytes(range(10)) * (PIECE_BYTES // 4)  # 10 is the newline itself
    data = b"".join(splitter.feed(line[start : start + 50_000], 1) for start in range(0, len(line), 50_000))
    records = list(decode_all(data + splitter.feed(b"\n", 1)))
    assert joined(records) == line + b"\n"
    assert max(len(record.data) for record in records) <= PIECE_BYTES


class Disk:
    """Takes what is written, until it is told to fail.

    Attributes:
        code: The error of a write that fails; 0: none does.
        fits: Bytes of a write that it takes all the same; a shorter write fails.
        whole: A write of at most so many bytes does not fail.
        is_full: What is answered when somebody asks, as `looks` counts.
    """

    code = fits = whole = looks = 0
    is_full = False

    def write(self, descriptor: int, data: bytes) -> int:
        if not self.code or len(data) <= self.whole:
            return os.write(descriptor, data)
        if self.fits and len(data) > self.fits:
            return os.write(descriptor, data[: self.fits])
        raise OSError(self.code, os.strerror(self.code))

    def look(self, descriptor: int) -> bool:
        os.fstat(descriptor)
        self.looks += 1
        return self.is_full


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def log(path: Path, disk: Disk) -> LogWriter:
    return LogWriter(path, 2 << 20, disk.write, disk.look)


def texts(path: Path) -> list[tuple[str, bool]]:
    return [(record.data.decode(), record.note) for record in decode_all(path.read_bytes())]


@pytest.mark.parametrize("seed", range(5))
def test_any_bytes_cut_anywhere_come_back_equal(seed: int, path: Path) -> None:
    source = random.Random(seed)
    data = b"".join(source.choice([b"\n", b"\x00\xff", b"line\n", source.randbytes(300)]) for _ in range(500))
    log = LogWriter(path)
    position = 0
    while position < len(data):
        step = source.randrange(1, 5000)
        log.feed(False, data[position : position + step], position + 1)
        if source.random() < 0.3:
            log.flush(position + 1)
        position += step
    log.finish(position)
    assert joined(decode_all(path.read_bytes())) in (data, data + b"\n")


def test_records_have_the_time_and_the_stream_of_their_output(log: LogWriter, path: Path) -> None:
    log.feed(False, b"out\n", 11)
    log.feed(True, b"err\n", 12)
    log.feed(False, b"half ", 13)
    log.feed(True, b"other", 14)
    assert log.has_rest
    log.flush(15)
    assert not log.has_rest
    log.finish(16)
    assert [(r.data, r.is_stderr, r.at_ms, r.partial) for r in decode_all(path.read_bytes())] == [
        (b"out", False, 11, False),
        (b"err", True, 12, False),
        (b"half ", False, 15, True),
        (b"other", True, 15, True),
        (b"", False, 16, False),
        (b"", True, 16, False),
    ]
    assert (path.stat().st_mode & 0o777, path.stat().st_size) == (0o600, log.size)


def test_a_file_is_made_with_the_first_byte_closed_at_the_end_and_opened_again(log: LogWriter, path: Path) -> None:
    """Its attempt may be held for long after its end."""
    log.finish(1)
    assert (log.size, path.exists()) == (0, False)
    before = set(os.listdir("/proc/self/fd"))
    log.feed(False, b"one\n", 1)
    assert not set(os.listdir("/proc/self/fd")) <= before
    log.close()
    log.close()
    assert set(os.listdir("/proc/self/fd")) <= before
    log.feed(False, b"two\n", 2)
    log.finish(2)
    assert set(os.listdir("/proc/self/fd")) <= before
    assert texts(path) == [("one", False), ("two", False)]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disks_hole_is_marked_once_there_is_room(log: LogWriter, path: Path, disk: Disk, code: int) -> None:
    log.feed(False, b"before\n", 1)
    disk.code, disk.fits = code, 10
    for number in range(5):
        log.feed(True, b"lost %d\n" % number, 2)
    disk.code = 0
    log.feed(False, b"after\n", 3)
    log.finish(4)
    lost = f"35 bytes of output lost: {FULL}"
    assert texts(path) == [("before", False), (lost, True), ("after", False)]
    assert path.stat().st_size == log.size
    assert (log.lost, log.unmarked) == (lost, "")


def test_several_reasons_are_told_each_with_its_count(log: LogWriter, path: Path, disk: Disk) -> None:
    for code, text in ((0, b"kept"), (errno.ENOSPC, b"123"), (0, b"back"), (errno.EIO, b"12345"), (0, b"again")):
        disk.code = code
        log.feed(False, text + b"\n", 1)
    log.finish(6)
    full, broken = f"4 bytes of output lost: {FULL}", f"6 bytes of output lost: {BROKEN} (Input/output error)"
    assert texts(path) == [("kept", False), (full, True), ("back", False), (broken, True), ("again", False)]
    assert log.lost == f"{full}; {broken}"


def test_a_note_alone_may_find_room_at_the_end(log: LogWriter, path: Path, disk: Disk) -> None:
    log.feed(False, b"kept\n", 1)
    disk.code, disk.whole = errno.ENOSPC, 120
    log.feed(False, b"x" * 500 + b"\n", 2)
    log.finish(3)
    assert texts(path) == [("kept", False), (f"501 bytes of output lost: {FULL}", True)]
    assert log.unmarked == ""


def test_beyond_the_limit_the_last_words_are_kept(log: LogWriter, path: Path) -> None:
    for _ in range(10_000):
        log.feed(False, LINE, 1)
    log.feed(False, b"the last line\n", 2)
    log.finish(3)
    found = texts(path)
    (note,) = [text for text, is_note in found if is_note]
    assert found[-1] == ("the last line", False)
    lost = 10_000 * 1000 + 14 - sum(len(text) + 1 for text, is_note in found if not is_note)
    why = "more than 2,097,152 bytes waited on the worker's disk for the controller"
    assert note == f"{lost:,} bytes of output lost: {why}"
    assert log.size < 2.5 * 2**20


def test_what_the_reader_gives_back_makes_room_for_more(log: LogWriter, path: Path) -> None:
    for number in range(10_000):
        log.feed(False, LINE, 1)
        if number % 500 == 0:
            with path.open("r+b") as file:
                if not punch(file.fileno(), log.size - 4096):
                    pytest.skip("this file system has no holes: what the controller has stays on the disk")
    log.finish(3)
    assert log.lost == ""
    with path.open("rb") as file:
        assert stored_bytes(file.fileno()) < 2 * 2**20 < log.size


def test_a_disk_that_is_nearly_full_is_left_alone_but_for_last_words(log: LogWriter, path: Path, disk: Disk) -> None:
    sizes = []
    for is_full in (False, True, True):
        disk.is_full = is_full
        for _ in range(200):
            log.feed(False, LINE, 1)
        sizes.append(log.size)
        if not is_full:
            assert disk.looks <= log.size // 2**16 + 1, "it is asked now and then, not at each line"
    before, written, later = sizes
    assert before < written < before + 150_000
    assert later == written
    log.feed(False, b"the end\n", 4)
    log.finish(5)
    found = texts(path)
    (note,) = [text for text, is_note in found if is_note]
    assert found[-1] == ("the end", False)
    last = found[[is_note for _, is_note in found].index(True) + 1 :]
    assert 60 <= len(last) <= 66, "64 KiB of the last that was lost"
    lost = 600 * 1000 + 8 - sum(len(text) + 1 for text, is_note in found if not is_note)
    assert note == log.lost == f"{lost:,} bytes of output lost: {FULL}"
    assert log.unmarked == ""


def test_before_much_is_written_at_once_it_is_asked_whether_there_is_room(log: LogWriter, disk: Disk) -> None:
    disk.is_full = True
    log.feed(False, b"little\n", 1)
    before = log.size
    assert before > 0
    log.feed(False, LINE * 300, 2)
    assert log.size == before
    assert log.lost == f"300,000 bytes of output lost: {FULL}"
