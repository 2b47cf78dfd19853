import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.rpc.logfilter import LineChoice, LineFilter, finds_in_blocks, required_text
from iris.rpc.logformat import Record
from rigging.errors import InvalidRequest


def record(text: str, at_ms: int = 1, *, stderr: bool = False, partial: bool = False, note: bool = False) -> Record:
    return Record(stderr, at_ms, text.encode(), partial, 0, note)


def chosen(records: list[Record], finish: bool = True, **choice: object) -> list[str]:
    lines: LineFilter[Record] = LineFilter(LineChoice(**choice))  # type: ignore[arg-type]  # words of the test
    found = [piece for item in records for piece in lines.take(item)]
    return [piece.data.decode() for piece in (*found, *(lines.finish() if finish else ()))]


def test_a_line_in_pieces_is_judged_whole_up_to_a_length_and_each_stream_for_itself() -> None:
    log = [record("pro", partial=True), record("stderr", stderr=True), record("gress", partial=True)]
    log += [record(" 5 %"), record("progress")]
    assert chosen(log, grep="progress 5") == ["pro", "gress", " 5 %"]
    assert chosen(log, grep="^stderr$") == ["stderr"]
    part = "x" * 700_000
    log = [record(part, partial=True), record("needle" + part, partial=True), record("end")]
    assert [len(text) for text in chosen(log, grep="needle")] == [700_000, 700_006], "longer than is held"


def test_what_is_missing_is_told_and_what_came_later_or_has_no_end_is_left_out() -> None:
    log = [record("a 1"), record("b 22"), record("1 byte lost", note=True), record("c 333")]
    assert chosen(log, grep=r"\d\d") == ["b 22", "1 byte lost", "c 333"]
    assert chosen([record("a", 1), record("b", 2), record("c", 3)], until_ms=2) == ["a", "b"]
    log = [record("prompt> ", partial=True)]
    assert chosen(log, grep="prompt", finish=False) == []
    assert chosen(log, grep="prompt") == ["prompt> "]


def test_a_line_without_a_level_belongs_to_the_one_before_it_in_its_stream() -> None:
    log = [
        record("before the first"), record("2026-05-03 INFO begin"), record("more of it"),
        record("E20260503 12:00 broken"), record("Traceback (most recent call last)"),
        record("INFO other stream", stderr=True), record("ValueError: ERROR is far behind" + "." * 90),
    ]  # fmt: skip
    assert chosen(log, level="warning") == [log[place].data.decode() for place in (0, 3, 4, 6)]


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        ({"grep": "("}, r"pattern '\(' is not a regular expression: missing \)"),
        ({"grep": "a" * 5000}, "5,000 characters; 4,096 are allowed"),
        ({"grep": "\ud800"}, "is not a regular expression"),
        ({"level": "loud"}, "level 'loud' is not one of debug, info, warning, error, critical"),
        ({"until_ms": -1}, r"until_ms \(-1\) must be 0 or more"),
        ({"attempt": -2}, r"attempt \(-2\) must be -1 or more"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(choice: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        LineChoice(**choice)  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("step=1234", b"step=1234"),
        (r"loss=0\.12\d+ lr", b"loss=0.12"),
        ("colou?r map", b"r map"),
        ("ab*cd", b"cd"),
        ("ab+cd", b"cd"),
        ("ab{2}cd", b"cd"),
        ("(abc)*de", b"de"),
        ("[abc]de", b"de"),
        ("[]abc]de", b"de"),
        (r"[^\]x]de", b"de"),
        ("^begin", b"begin"),
        *((pattern, b"") for pattern in ("a|b", "(?i)error", r"\x41bcd", r"(.)\1bc", "a.b")),
        ("größe", "größe".encode()),
    ],
)
def test_a_text_that_every_match_has(pattern: str, text: bytes) -> None:
    assert required_text(pattern) == text


ATOMS = st.one_of(
    st.sampled_from(string.ascii_letters + string.digits + " =:,_-ü"),
    st.sampled_from(
        [r"\d", r"\w", r"\.", r"\[", r"\b", ".", "[ab]", "[^a]", "[]x]", "(ab)", "(a.c)", "^", "$", "]", "}"]
    ),
)
REPEATS = st.sampled_from(["", "", "", "", "*", "+", "?", "{2}", "{0,1}", "{,2}", "*?"])
PATTERNS = st.lists(st.tuples(ATOMS, REPEATS), max_size=8).map(
    lambda parts: "".join(atom if atom in "^$" else atom + repeat for atom, repeat in parts)
)


@given(PATTERNS, st.binary(max_size=9), st.text(alphabet="ab.[]x0 =ü", max_size=30), st.binary(max_size=9))
def test_a_line_that_matches_is_found_among_others(pattern: str, before: bytes, line: str, behind: bytes) -> None:
    try:
        compiled = re.compile(pattern.encode())
    except re.error:
        return
    if (found := compiled.search(line.encode())) is None:
        return
    assert required_text(pattern) in line.encode()
    if not finds_in_blocks(pattern):
        return
    around = compiled.search(before + line.encode() + behind)
    assert around is not None
    assert around.start() <= len(before) + found.start()


@pytest.mark.parametrize(
    ("pattern", "whole"),
    [
        *((pattern, True) for pattern in ("(?i)error", r"\d{30}", "(?:error|rare)", "a?b{2,3}")),
        *(
            (pattern, False)
            for pattern in ("^a", "a$", r"\bERROR", "(?=a)", "(?<!a)b", "(?>ab)", "(?m)a", "a{2,}", ".*a")
        ),
    ],
)
def test_expressions_that_may_be_searched_in_many_lines_at_once(pattern: str, whole: bool) -> None:
    assert finds_in_blocks(pattern) is whole
