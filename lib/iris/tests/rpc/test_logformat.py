import io

import pytest

from iris.rpc.logformat import MAX_DATA_BYTES, decode_all, encode, last_complete, read_from, read_tail

LINES = [
    (False, 10, b"one", False),
    (True, 20, b"", False),
    (False, 30, b"three" * 1000, True),
    (False, 40, b"4", False),
]
LOG = b"".join(encode(*line) for line in LINES)


def plain(records: object) -> list[tuple[bool, int, bytes, bool]]:
    return [(r.is_stderr, r.at_ms, r.data, r.partial) for r in records]  # type: ignore[attr-defined]


def test_records_come_back_as_written() -> None:
    assert plain(decode_all(LOG)) == LINES
    assert [r.end for r in decode_all(LOG)][-1] == len(LOG)


@pytest.mark.parametrize("cut", range(1, 22))
def test_a_cut_last_record_is_left_out(cut: int) -> None:
    whole = 4 if cut == 0 else 3 if cut <= 18 else 2
    assert plain(decode_all(LOG[:-cut])) == LINES[:whole]
    assert plain(read_tail(io.BytesIO(LOG[:-cut]), 2)) == LINES[:whole][-2:]
    assert last_complete(io.BytesIO(LOG[:-cut]), len(LOG) - cut) == sum(len(encode(*line)) for line in LINES[:whole])


@pytest.mark.parametrize(("max_lines", "since_ms", "expected"), [(2, 0, LINES[2:]), (9, 25, LINES[2:]), (1, 41, [])])
def test_tail_reads_from_the_end(max_lines: int, since_ms: int, expected: list[object]) -> None:
    assert plain(read_tail(io.BytesIO(LOG), max_lines, since_ms)) == expected


def test_tail_without_a_limit_gives_all() -> None:
    assert plain(read_tail(io.BytesIO(LOG), 0)) == LINES
    assert plain(read_tail(io.BytesIO(LOG), 0, end=len(LOG) - 18)) == LINES[:3]


def test_read_from_goes_on_where_a_reader_left() -> None:
    first = next(iter(read_from(io.BytesIO(LOG), 0)))
    assert plain(read_from(io.BytesIO(LOG), first.end)) == LINES[1:]


def test_long_logs_are_read_in_pieces() -> None:
    lines = [(False, i, bytes([i % 256]) * 70_000, False) for i in range(20)]
    log = b"".join(encode(*line) for line in lines)
    assert plain(read_from(io.BytesIO(log), 0)) == lines


def test_what_is_no_log_is_named_as_such() -> None:
    with pytest.raises(ValueError, match="not a log record at offset 0"):
        list(decode_all(b"\xff" * 40))
    with pytest.raises(ValueError, match=f"at most {MAX_DATA_BYTES} bytes"):
        encode(False, 0, b"x" * (MAX_DATA_BYTES + 1))
