"""Searching many lines at once: nothing that a line has is passed over."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from iris.controller.logs.search import block_search

PARTS = st.sampled_from(
    ["a", "B", "é", r"\d", r"\W", r"\s", r"\v", ".", "[^a]", "[a-c]", "[[:x]", "[]a]", "(?:a|b)", "|", "?", "{2}",
     "{1,3}", "{,2}", r"\.", r"\x61", "=", "(a)", r"\1", "_"]
)  # fmt: skip
FLAGS = st.sampled_from(["", "(?i)", "(?s)"])
PATTERNS = st.builds(lambda flags, parts: flags + "".join(parts), FLAGS, st.lists(PARTS))


@pytest.mark.filterwarnings("ignore:Possible nested set")
@given(PATTERNS, st.binary(max_size=9), st.text(alphabet="abcABC=._1é\v\n ", max_size=30), st.binary(max_size=9))
@example(r"a\sb", b"", "a\vb", b"")
@example("[^[:x]", b"", ":", b"")
def test_what_is_found_in_a_line_is_found_in_a_block(pattern: str, before: bytes, line: str, behind: bytes) -> None:
    try:
        compiled = re.compile(pattern.encode())
    except re.error:
        return
    find = block_search(pattern)
    found = compiled.search(line.encode())
    if find is None or found is None:
        return
    assert 0 <= find(before + line.encode() + behind, 0) <= len(before) + found.start()


@pytest.mark.parametrize("pattern", [r"\d{30}", "(?i)error", "a|b", r"x\sy", "é"])
def test_it_goes_on_from_a_position(pattern: str) -> None:
    find = block_search(pattern)
    assert find is not None
    text = "zz 012345678901234567890123456789 ERROR a x y é zz".encode()
    first = find(text, 0)
    assert first > 2
    assert find(text, len(text) - 2) == -1


@pytest.mark.parametrize("pattern", ["^a", "a$", ".*a", r"\bERROR", "(?=a)"])
def test_lines_are_looked_at_by_themselves_where_a_block_would_look_different(pattern: str) -> None:
    assert block_search(pattern) is None
