import errno
import os
import random
from pathlib import Path

import pytest

from iris.rpc.logformat import Record, decode_all
from iris.worker.guardian.log_room import punch, stored_bytes
from iris.worker.guardian.log_writer import PIECE_BYTES, LineSplitter, LogWriter


def decoded(data: bytes) -> list[tuple[bytes, bool]]:
    return [(record.data, record.partial) for record in decode_all(data)]


def joined(records: list[Record]) -> bytes:
    return b"".join(record.data + (b"" if record.partial else b"\n") for record in records)


def test_lines_are_records_and_the_rest_waits() -> None:
    splitter = LineSplitter(is_stderr=True)
    assert decoded(splitter.feed(b"one\ntwo\nthr", 5)) == [(b"one", False), (b"two", False)]
    assert splitter.has_rest
    assert decoded(splitter.feed(b"ee\n", 6)) == [(b"three", False)]
    assert next(decode_all(splitter.feed(b"x\n", 7))).is_stderr


def test_a_flushed_line_is_partial_until_its_end_comes() -> None:
    splitter = LineSplitter(False)
    assert splitter.feed(b"50%", 1) == b""
    assert decoded(splitter.flush(2)) == [(b"50%", True)]
    assert splitter.flush(3) == b""
    assert decoded(splitter.feed(b"\nnext\n", 4)) == [(b"", False), (b"next", False)]


def test_output_that_ends_without_newline_is_a_whole_last_line() -> None:
    splitter = LineSplitter(False)
    splitter.feed(b"no newline", 1)
    assert decoded(splitter.close(2)) == [(b"no newline", False)]
    assert splitter.close(3) == b""


def test_close_ends_a_line_that_was_flushed() -> None:
    splitter = LineSplitter(False)
    splitter.feed(b"prompt> ", 1)
    splitter.flush(2)
    assert decoded(splitter.close(3)) == [(b"", False)]


def test_a_line_in_pieces_is_closed_by_what_ends_it() -> None:
    splitter = LineSplitter(False)
    fits = b"x" * PIECE_BYTES
    assert decoded(splitter.feed(fits + b"\n", 1)) == [(fits, False)], "a line of just that size is whole"
    assert decoded(splitter.feed(fits, 1)) == []
    assert decoded(splitter.feed(b"yz", 2)) == [(fits, True)]
    assert splitter.has_rest
    assert decoded(splitter.close(3)) == [(b"yz", False)]
    assert splitter.feed(fits + b"y", 4) != b""
    assert decoded(splitter.feed(b"\n", 5)) == [(b"y", False)]
    assert splitter.close(6) == b"", "the line has its end"
    splitter.feed(b"prompt", 7)
    splitter.flush(8)
    splitter.feed(b"\n", 9)
    assert splitter.close(10) == b""


def test_a_long_line_that_was_flushed_is_ended_by_the_close() -> None:
    splitter = LineSplitter(False)
    splitter.feed(b"x" * PIECE_BYTES + b"y", 1)
    assert decoded(splitter.flush(2)) == [(b"y", True)]
    assert decoded(splitter.close(3)) == [(b"", False)]
    assert splitter.close(4) == b""


def test_long_lines_come_in_pieces_that_join_to_the_line() -> None:
    splitter = LineSplitter(False)
    line = bytes(range(10)) * (PIECE_BYTES // 4)  # 10 is the newline itself
    data = b"".join(splitter.feed(line[start : start + 50_000], 1) for start in range(0, len(line), 50_000))
    records = list(decode_all(data + splitter.feed(b"\n", 1)))
    assert joined(records) == line + b"\n"
    assert max(len(record.data) for record in records) <= PIECE_BYTES


@pytest.mark.parametrize("seed", range(5))
def test_any_bytes_cut_anywhere_come_back_equal(seed: int, tmp_path: Path) -> None:
    source = random.Random(seed)
    data = b"".join(source.choice([b"\n", b"\x00\xff", b"line\n", source.randbytes(300)]) for _ in range(500))
    log = LogWriter(tmp_path / "log")
    position = 0
    while position < len(data):
        step = source.randrange(1, 5000)
        log.feed(False, data[position : position + step], position + 1)
        if source.random() < 0.3:
            log.flush(position + 1)
        position += step
    log.finish(position)
    text = joined(list(decode_all((tmp_path / "log").read_bytes())))
    assert text in (data, data + b"\n")


def test_no_output_makes_no_file(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "log")
    log.finish(1)
    assert log.size == 0
    assert list(tmp_path.iterdir()) == []


def test_a_finished_log_is_not_kept_open(tmp_path: Path) -> None:
    """Its attempt may be held for long after its end."""
    before = set(os.listdir("/proc/self/fd"))
    log = LogWriter(tmp_path / "log")
    log.feed(False, b"line\n", 1)
    assert not set(os.listdir("/proc/self/fd")) <= before
    log.finish(2)
    assert set(os.listdir("/proc/self/fd")) <= before


def texts(path: Path) -> list[tuple[bytes, bool]]:
    return [(record.data, record.note) for record in decode_all(path.read_bytes())]


def test_output_that_cannot_be_written_is_counted_and_what_was_promised_stays(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "missing" / "log")
    log.feed(False, b"line\nanother\n", 1)
    assert log.size == 0
    log.finish(2)
    assert log.lost == "13 bytes of output lost: it cannot be written on the worker's disk (No such file or directory)"
    assert log.unmarked == log.lost


class Disk:
    """Takes what is written, until it is told to fail.

    Attributes:
        code: The error of a write that fails; 0: none does.
        fits: Bytes of a write that it takes all the same; a shorter write fails.
        whole: A write of at most so many bytes does not fail.
    """

    code = 0
    fits = 0
    whole = 0

    def write(self, descriptor: int, data: bytes) -> int:
        if not self.code or len(data) <= self.whole:
            return os.write(descriptor, data)
        if self.fits and len(data) > self.fits:
            return os.write(descriptor, data[: self.fits])
        raise OSError(self.code, os.strerror(self.code))


def test_the_hole_of_a_full_disk_is_marked_once_there_is_room_again(tmp_path: Path) -> None:
    disk = Disk()
    log = LogWriter(tmp_path / "log", write=disk.write)
    log.feed(False, b"before\n", 1)
    disk.code, disk.fits = errno.ENOSPC, 10
    for number in range(5):
        log.feed(True, b"lost %d\n" % number, 2)
    disk.code = 0
    log.feed(False, b"after\n", 3)
    log.finish(4)
    assert texts(tmp_path / "log") == [
        (b"before", False),
        (b"35 bytes of output lost: no space left on the worker's disk", True),
        (b"after", False),
    ]
    assert (tmp_path / "log").stat().st_size == log.size
    assert log.lost == "35 bytes of output lost: no space left on the worker's disk"
    assert log.unmarked == ""


def test_beyond_the_limit_the_last_words_are_kept(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "log", limit_bytes=2 * 2**20)
    line = b"x" * 999 + b"\n"
    for _ in range(10_000):
        log.feed(False, line, 1)
    log.feed(False, b"the last line\n", 2)
    log.finish(3)
    found = texts(tmp_path / "log")
    (note,) = [text for text, is_note in found if is_note]
    assert found[-1] == (b"the last line", False)
    kept = sum(len(text) + 1 for text, is_note in found if not is_note)
    lost = 10_000 * 1000 + 14 - kept
    assert note == f"{lost:,} bytes of output lost: ".encode() + note.partition(b"lost: ")[2]
    assert b"more than 2,097,152 bytes waited on the worker's disk for the controller" in note
    assert log.size < 2.5 * 2**20


def test_what_the_reader_gives_back_makes_room_for_more(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "log", limit_bytes=2 * 2**20)
    line = b"x" * 999 + b"\n"
    for number in range(10_000):
        log.feed(False, line, 1)
        if number % 500 == 0:
            with (tmp_path / "log").open("r+b") as file:
                if not punch(file.fileno(), log.size - 4096):
                    pytest.skip("this file system has no holes: what the controller has stays on the disk")
    log.finish(3)
    assert log.lost == ""
    with (tmp_path / "log").open("rb") as file:
        assert stored_bytes(file.fileno()) < 2 * 2**20 < log.size


def test_records_have_the_time_and_the_stream_of_their_output(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "log")
    log.feed(False, b"out\n", 11)
    log.feed(True, b"err\n", 12)
    log.feed(False, b"half ", 13)
    log.feed(True, b"other", 14)
    assert log.has_rest
    log.flush(15)
    assert not log.has_rest
    log.finish(16)
    found = [(r.data, r.is_stderr, r.at_ms, r.partial) for r in decode_all((tmp_path / "log").read_bytes())]
    assert found == [
        (b"out", False, 11, False),
        (b"err", True, 12, False),
        (b"half ", False, 15, True),
        (b"other", True, 15, True),
        (b"", False, 16, False),
        (b"", True, 16, False),
    ]
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "log").stat().st_size == log.size


def test_what_comes_after_the_file_was_closed_opens_it_again(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "log")
    log.feed(False, b"one\n", 1)
    log.close()
    log.close()
    log.feed(False, b"two\n", 2)
    log.finish(3)
    assert texts(tmp_path / "log") == [(b"one", False), (b"two", False)]


def test_a_disk_that_is_nearly_full_is_left_alone_and_the_last_words_find_room(tmp_path: Path) -> None:
    is_full = False
    looks: list[int] = []

    def look(descriptor: int) -> bool:
        looks.append(descriptor)
        return is_full

    log = LogWriter(tmp_path / "log", is_full=look)
    line = b"x" * 999 + b"\n"
    for _ in range(200):
        log.feed(False, line, 1)
    assert len(looks) <= log.size // 2**16 + 1, "it is asked now and then, not at each line"
    before = log.size
    is_full = True
    for _ in range(200):
        log.feed(False, line, 2)
    written = log.size
    assert before < written < before + 150_000, "it is looked at now and then, not at each line"
    for _ in range(200):
        log.feed(False, line, 3)
    assert log.size == written
    log.feed(False, b"the end\n", 4)
    log.finish(5)
    found = texts(tmp_path / "log")
    (note,) = [text for text, is_note in found if is_note]
    assert note.endswith(b"no space left on the worker's disk")
    assert found[-1] == (b"the end", False)
    last = found[[is_note for _, is_note in found].index(True) + 1 :]
    assert 60 <= len(last) <= 66, "64 KiB of the last that was lost"
    lost = 600 * 1000 + 8 - sum(len(text) + 1 for text, is_note in found if not is_note)
    assert log.lost == f"{lost:,} bytes of output lost: no space left on the worker's disk"
    assert log.unmarked == ""


def test_several_reasons_are_told_each_with_its_count(tmp_path: Path) -> None:
    disk = Disk()
    log = LogWriter(tmp_path / "log", write=disk.write)
    log.feed(False, b"kept\n", 1)
    disk.code = errno.ENOSPC
    log.feed(False, b"123\n", 2)
    disk.code = 0
    log.feed(False, b"back\n", 3)
    disk.code = errno.EIO
    log.feed(False, b"12345\n", 4)
    disk.code = 0
    log.feed(False, b"again\n", 5)
    log.finish(6)
    io = "it cannot be written on the worker's disk (Input/output error)"
    full = "no space left on the worker's disk"
    assert texts(tmp_path / "log") == [
        (b"kept", False),
        (f"4 bytes of output lost: {full}".encode(), True),
        (b"back", False),
        (f"6 bytes of output lost: {io}".encode(), True),
        (b"again", False),
    ]
    assert log.lost == f"4 bytes of output lost: {full}; 6 bytes of output lost: {io}"


def test_a_quota_is_a_full_disk(tmp_path: Path) -> None:
    disk = Disk()
    disk.code = errno.EDQUOT
    log = LogWriter(tmp_path / "log", write=disk.write)
    log.feed(False, b"123\n", 2)
    log.finish(3)
    assert log.lost == log.unmarked == "4 bytes of output lost: no space left on the worker's disk"


def test_a_note_alone_may_find_room_at_the_end(tmp_path: Path) -> None:
    disk = Disk()
    log = LogWriter(tmp_path / "log", write=disk.write)
    log.feed(False, b"kept\n", 1)
    disk.code, disk.whole = errno.ENOSPC, 120
    log.feed(False, b"x" * 500 + b"\n", 2)
    log.finish(3)
    assert texts(tmp_path / "log") == [
        (b"kept", False),
        (b"501 bytes of output lost: no space left on the worker's disk", True),
    ]
    assert log.unmarked == ""


def test_before_much_is_written_at_once_it_is_asked_whether_there_is_room(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "log", is_full=lambda descriptor: True)
    log.feed(False, b"little\n", 1)
    before = log.size
    assert before > 0
    log.feed(False, (b"x" * 999 + b"\n") * 300, 2)
    assert log.size == before
    assert log.lost == "300,000 bytes of output lost: no space left on the worker's disk"
