"""Lines for programs are left out, and nothing else is."""

from hypothesis import given
from hypothesis import strategies as st

from iris.client.logs.for_programs import ProgramLines
from iris.client.types import LogLine


def pieces_of(text: bytes, cuts: list[int]) -> list[LogLine]:
    """A stream as a worker stores it: lines, some of them in pieces."""
    found = []
    lines = text.split(b"\n")
    for number, line in enumerate(lines):
        is_last = number == len(lines) - 1
        if is_last and not line:
            continue
        cut = cuts[number % len(cuts)] if cuts else 0
        if 0 < cut < len(line):
            found.append(LogLine("/u/j/0", 0, False, 0, line[:cut], True, False))
            line = line[cut:]
        found.append(LogLine("/u/j/0", 0, False, 0, line, is_last, False))
    return found


def shown(lines: list[LogLine]) -> bytes:
    filter = ProgramLines()
    kept = [shown for line in lines for shown in filter.take(line)] + filter.finish()
    return b"".join(line.data + (b"" if line.partial else b"\n") for line in kept)


@given(st.lists(st.sampled_from([b"", b"a", b"bcd", b"x\x10y"]), max_size=8), st.lists(st.integers(0, 4)))
def test_lines_for_people_stay_as_they_are(lines: list[bytes], cuts: list[int]) -> None:
    text = b"".join(line + b"\n" for line in lines)
    assert shown(pieces_of(text, cuts)) == text


@given(
    st.lists(st.tuples(st.sampled_from([b"a\n", b"bcd\n", b"open"]), st.booleans()), max_size=8),
    st.lists(st.integers(0, 4)),
)
def test_lines_for_programs_are_left_out_with_the_newline_before_them(
    parts: list[tuple[bytes, bool]], cuts: list[int]
) -> None:
    """A program ends the line before, which may have been open, with a newline of its own."""
    text = b"".join(part + (b"\n\x10note {}\n" if noted else b"") for part, noted in parts)
    wanted = b""
    for part, noted in parts:
        wanted += part
        if noted and not part.endswith(b"\n"):
            wanted += b"\n"
    assert shown(pieces_of(text, cuts)) == wanted


def test_an_empty_line_at_the_end_is_shown_there() -> None:
    assert shown(pieces_of(b"a\n\n", [])) == b"a\n\n"
