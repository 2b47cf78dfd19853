"""Lines of a job's output: the same ones, in whatever pieces it is read."""

import random

from marin.execution.log.lines import OutputLines
from marin.execution.log.notes import LogNote, Note, ProgressNote, text_of_note
from marin.execution.report.progress import Use

OUTPUT = (
    "one\ntwö\r\n\n"
    + text_of_note(LogNote("=== h", 0, True))
    + "half"
    + text_of_note(ProgressNote(1, 2))
    + "\r10%\r50%\r100%\nplain\n\x1b[31mred\x1b[0m\nabove\nbelow\x1b[A\rrewritten\n\nlast\n"
    + text_of_note(Use(1.5, 7))
    + "open"
).encode() + b"\xff\n\xf0\x9f"


def read(pieces: list[tuple[int, bytes]]) -> tuple[list[str], list[Note]]:
    notes: list[Note] = []
    lines = OutputLines(lambda _, note: notes.append(note))
    found = [line for piece in pieces for line in lines.feed([piece])]
    return found + lines.end(), notes


def test_the_same_lines_come_in_whatever_pieces_they_are_read() -> None:
    """A process, who follows it, and who completes its log each read on their own."""
    whole, notes = read([(0, OUTPUT)])
    assert whole[:4] == ["one", "twö", "", "half"]
    assert whole[-2:] == ["open\\xff", "\\xf0\\x9f"]
    assert [type(note) for note in notes] == [LogNote, ProgressNote, Use]
    dice = random.Random(7)
    for _ in range(200):
        cuts = sorted(dice.randrange(len(OUTPUT)) for _ in range(dice.randrange(1, 40)))
        pieces = [(0, OUTPUT[a:b]) for a, b in zip([0, *cuts], [*cuts, len(OUTPUT)], strict=True)]
        assert read(pieces) == (whole, notes)


def test_streams_do_not_mix() -> None:
    lines, _ = read([(1, b"out "), (2, b"err\n"), (1, b"goes on\n"), (2, b"\n"), (1, b"x\n"), (2, b"end")])
    assert lines == ["err", "out goes on", "x", "", "end"]


def test_an_empty_line_of_a_programs_own_stays_and_one_before_a_note_goes() -> None:
    note = text_of_note(Use(1, 2))
    assert read([(0, f"a\n\n{note}b\n\n\nc\n{note}".encode())])[0] == ["a", "", "b", "", "", "c"]
