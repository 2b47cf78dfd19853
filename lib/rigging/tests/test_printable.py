import contextlib
import io
import json
import os
import subprocess
import sys

import pytest

from rigging.text.printable import is_printable_line, print_lines, printable, printable_json, printable_line, text_of

HOSTILE = "\x1b]0;title\x07\x9b31m\x7f\r\u202egpj\u2066\u200f\u2028\ufeff\udcff\U000e0041"


def test_nothing_that_a_terminal_obeys_is_left() -> None:
    shown = printable(f"a{HOSTILE}b")
    assert shown.isascii()
    assert shown.isprintable()
    assert shown.startswith(r"a\x1b]0;title\x07\x9b31m\x7f\x0d\u202egpj\u2066")


def test_other_text_stays_as_it_is() -> None:
    text = "naïve 日本語 👩\u200d💻 \u05d0\u05d1 line\n\tindented"
    assert printable(text) == text
    assert printable_line("two\nlines\tand a tab") == "two lines and a tab"
    assert is_printable_line("plain ünicode")
    assert not any(map(is_printable_line, ("two\nlines", "\x1b[1m", "\u202e")))


class Mute:
    def __str__(self) -> str:
        raise LookupError("no words")


def test_a_value_that_has_no_text_is_described() -> None:
    assert [text_of(Mute()), text_of(5)] == ["<a Mute whose str() raises LookupError>", "5"]


@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_json_means_the_same(ensure_ascii: bool) -> None:
    shown = printable_json(json.dumps([HOSTILE], indent=1, ensure_ascii=ensure_ascii))
    assert json.loads(shown) == [HOSTILE]
    assert shown.replace("\n", "").isprintable()


def test_a_closed_stdout_drops_lines_and_keeps_no_descriptor() -> None:
    closed = io.StringIO()
    closed.close()
    before = len(os.listdir("/proc/self/fd"))
    for stream in (closed, None):
        with contextlib.redirect_stdout(stream):
            print_lines(["one", "two"])
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_stdout_cannot_encode_is_escaped() -> None:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding="ascii") as stream, contextlib.redirect_stdout(stream):
        print_lines(["né 日", "next"])
        assert raw.getvalue() == b"n\\xe9 \\u65e5\nnext\n"


def test_when_its_reader_is_gone_the_interpreter_ends_in_peace() -> None:
    """Else it would write what is left at its end, and report the broken pipe."""
    program = "from rigging.text.printable import print_lines; print_lines(['x' * 100_000] * 3); print_lines(['y'])"
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run([sys.executable, "-c", program], stdout=write, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")
