import pytest

from iris.rpc.logformat import (
    MAX_DATA_BYTES,
    RECORD_OVERHEAD,
    Read,
    Record,
    decode_all,
    encode,
    encode_lines,
    hole,
)
from iris.rpc.logreading import last_complete, read_from, start_of_last

LINES = [
    (False, 10, b"one", False), (True, 20, b"", False), (False, 30, b"three" * 1000, True), (False, 40, b"4", False),
]  # fmt: skip
LOG = b"".join(encode(*line) for line in LINES)


def of(log: bytes) -> Read:
    return lambda offset, count: log[offset : offset + count]


def tail(log: bytes, count: int, since_ms: int = 0) -> list[Record]:
    end = last_complete(of(log), len(log))
    start, _ = start_of_last(of(log), count, since_ms, end)
    return list(read_from(of(log), start, end, True))


def plain(records: object) -> list[tuple[bool, int, bytes, bool]]:
    return [(r.is_stderr, r.at_ms, r.data, r.partial) for r in records]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("cut", "whole"), [(0, 4), (1, 3), (17, 3), (18, 3), (19, 2), (21, 2)])
def test_records_come_back_as_written_but_for_a_cut_last_one(cut: int, whole: int) -> None:
    log, lines = LOG[: len(LOG) - cut], LINES[:whole]
    end = sum(len(encode(*line)) for line in lines)
    assert plain(decode_all(log)) == plain(read_from(of(log), 0, len(log))) == lines
    assert [record.end for record in decode_all(log)][-1] == end
    assert plain(tail(log, 2)) == lines[-2:]
    assert last_complete(of(log), len(log)) == end


@pytest.mark.parametrize(
    ("max_lines", "since_ms", "cut", "expected"),
    [(2, 0, 0, LINES[2:]), (9, 25, 0, LINES[1:]), (1, 41, 0, LINES[3:]), (9, 0, 0, LINES), (9, 0, 18, LINES[:3])],
)
def test_the_last_lines_and_one_that_is_earlier_than_what_is_wanted(
    max_lines: int, since_ms: int, cut: int, expected: list[object]
) -> None:
    assert plain(tail(LOG[: len(LOG) - cut], max_lines, since_ms)) == expected


def test_long_logs_are_read_in_pieces() -> None:
    lines = [(False, i, bytes([i % 256]) * 70_000, False) for i in range(20)]
    log = b"".join(encode(*line) for line in lines)
    assert plain(read_from(of(log), 0, len(log))) == lines


def test_what_is_no_log_is_named_as_such() -> None:
    with pytest.raises(ValueError, match="not a log record at offset 0"):
        list(decode_all(b"\xff" * 40))
    with pytest.raises(ValueError, match="not a log record at offset 0: flags 0x8, length 3"):
        list(decode_all(b"\x08" + LOG[1:19]))  # of a record that is not all here, and would be none
    with pytest.raises(ValueError, match=f"at most {MAX_DATA_BYTES} bytes"):
        encode(False, 0, b"x" * (MAX_DATA_BYTES + 1))


NOW = 1_790_000_000_000
MANY = [(i % 3 == 0, NOW + i, b"line %d" % i, False) for i in range(500)]
MANY_LOG = b"".join(encode(*line) for line in MANY)
SECOND = 2 * len(encode(*MANY[0]))  # where the third record begins


def damaged(begin: int, data: bytes) -> bytes:
    return MANY_LOG[:begin] + data + MANY_LOG[begin + len(data) :]


@pytest.mark.parametrize(
    ("log", "hole"),
    [
        (damaged(SECOND, b"\xff"), 23),  # one bad header: one record is lost
        (damaged(4096, bytes(4096)), None),  # a zeroed page
        (damaged(4096, b"\x01\x02\x03\x04" * 1024), None),
        (damaged(len(MANY_LOG) - 300, bytes(300)), None),  # a tail that was never written
        (MANY_LOG[5:], None),  # the head is gone
    ],
)
def test_damage_makes_only_itself_unreadable_and_is_marked_with_its_size(log: bytes, hole: int | None) -> None:
    records = list(read_from(of(log), 0, len(log), True))
    notes = [record for record in records if record.note]
    intact = [record for record in records if not record.note]
    # Without a checksum the first line behind a hole may have another time or stream, never another text.
    assert {record.data for record in intact} <= {line[2] for line in MANY}
    assert len(notes) == 1
    assert notes[0].is_stderr
    assert notes[0].data.startswith(f"{notes[0].hole:,} bytes of the log cannot be read".encode())
    assert hole is None or notes[0].hole == hole
    assert sum(len(record.data) + RECORD_OVERHEAD for record in intact) + notes[0].hole == len(log)
    for count in (1, 7, 480, 1000):
        last = tail(log, count)
        assert [record.data for record in last if not record.note] == [
            record.data for record in records[-count:] if not record.note
        ][-len([record for record in last if not record.note]) :]
        assert len(last) == min(count, len(records))


def test_notes_are_told_from_output_and_are_lines_by_themselves() -> None:
    """The next line of the task does not go on with one, as that behind a partial one would."""
    log = encode(True, NOW, b"5 bytes of output lost", note=True)
    assert [(record.note, record.hole, record.partial) for record in decode_all(log)] == [(True, 0, False)]
    note = hole(NOW, 50, 40, b"40 bytes lost")
    assert list(note.records()) == [Record(True, NOW, b"40 bytes lost", False, 50, note=True, hole=40)]


def test_a_flipped_byte_of_a_line_is_marked_and_not_shown_as_output() -> None:
    records = [encode(False, 1_700_000_000_000, f"line-{number}".encode()) for number in range(50)]
    log = b"".join(records)
    begin = len(b"".join(records[:20]))
    for at in range(begin, begin + len(records[20])):
        damaged = bytearray(log)
        damaged[at] ^= 0x41
        for found in (list(read_from(of(bytes(damaged)), 0, len(log), True)), tail(bytes(damaged), 999)):
            shown = [record.data for record in found if not record.note]
            assert shown == [f"line-{number}".encode() for number in range(50) if number != 20], at
            (told,) = [record for record in found if record.note]
            assert told.data == b"%d bytes of the log cannot be read: they are damaged on the disk" % len(records[20])


def test_many_lines_at_once_are_the_same_records() -> None:
    lines = [b"", b"one", b"x" * 70_000]
    lines += [b"%d" % number for number in range(20_000)]  # some of a checksum that is 0, which would say "none"
    for is_stderr in (False, True):
        each = b"".join(encode(is_stderr, 1_700_000_000_000, line) for line in lines)
        assert encode_lines(is_stderr, 1_700_000_000_000, lines) == each


@pytest.mark.parametrize(("is_stderr", "number"), [(False, 1322), (True, 1598)])
def test_a_line_whose_checksum_happens_to_be_zero_is_protected_like_any_other(is_stderr: bool, number: int) -> None:
    """Zeros are no record."""
    log = encode_lines(is_stderr, 1_700_000_000_000, [b"line %d" % number])
    assert log == encode(is_stderr, 1_700_000_000_000, b"line %d" % number)
    assert [record.data for record in decode_all(log)] == [b"line %d" % number]
    damaged = bytearray(log)
    damaged[RECORD_OVERHEAD - 4 + 2] ^= 0x41
    assert [record.note for record in read_from(of(bytes(damaged)), 0, len(log), True)] == [True]


@pytest.mark.parametrize("size", [0, 1, 12, 13, 19])
def test_a_first_record_that_is_still_written_is_no_record_yet(size: int) -> None:
    assert last_complete(of(LOG), size) == 0
    assert tail(LOG[:size], 5) == []


def test_damage_is_told_the_same_from_wherever_one_reads_on() -> None:
    log = damaged(4096, bytes(4096))
    whole = list(read_from(of(log), 0, len(log), True))
    for count in (1, 2, 50, 100):
        start = whole[count - 1].end
        assert list(read_from(of(log), start, len(log), True)) == whole[count:]


def test_a_hole_larger_than_what_is_read_at_once_is_one_hole() -> None:
    begin = len(encode(*MANY[0])) * 3
    log = MANY_LOG[:begin] + bytes(600_000) + MANY_LOG[begin:]
    records = list(read_from(of(log), 0, len(log), True))
    assert plain(records[:3] + records[4:]) == MANY
    assert (records[3].hole, records[3].at_ms, records[3].end) == (600_000, MANY[2][1], begin + 600_000)
    assert tail(log, 499) == records[-499:]
