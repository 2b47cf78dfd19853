import random
from pathlib import Path

import pytest

from iris.rpc.logformat import Record, decode_all
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


def test_a_full_disk_loses_output_loudly_and_keeps_what_was_promised(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "missing" / "log")
    log.feed(False, b"line\n", 1)
    assert log.size == 0
    assert "output was lost" in log.error
