"""Escape control characters in foreign text before a terminal shows it."""

import contextlib
import os
import re
import sys
from collections.abc import Iterable
from typing import Final, TextIO

# C0 and C1 controls and DEL (ESC, OSC, CSI and their like begin with them), marks and overrides of writing direction,
# line separators, invisible tags, the byte order mark, and surrogates, which cannot be written at all.
_CONTROLS: Final = "\x00-\x08\x0b-\x1f\x7f-\x9f"
_INVISIBLE: Final = "\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff"
_UNSAFE: Final = re.compile(f"[{_CONTROLS}{_INVISIBLE}]")
_UNSAFE_IN_A_LINE: Final = re.compile(f"[\t\n{_CONTROLS}{_INVISIBLE}]")


def printable(text: str) -> str:
    """Return `text` in a form that is safe on a terminal, e.g. with "\\x1b" in four characters for ESC. Line breaks and
    tabs stay.
    """
    return _UNSAFE.sub(_escape, text)


def printable_line(text: str) -> str:
    """Return `printable` text on one line: line breaks and tabs become spaces."""
    return _UNSAFE_IN_A_LINE.sub(lambda match: " " if match[0] in "\t\n" else _escape(match), text)


def printable_json(text: str) -> str:
    """Return equivalent JSON that is safe on a terminal."""
    return _UNSAFE.sub(_escape_json, text)


def is_printable_line(text: str) -> bool:
    """Return whether `text` is a single line without characters to escape."""
    return _UNSAFE_IN_A_LINE.search(text) is None


def text_of(value: object) -> str:
    """Return `str(value)`, or a description if that raises."""
    try:
        return str(value)
    except Exception as error:  # of the value's own code
        return f"<a {type(value).__name__} whose str() raises {type(error).__name__}>"


def print_lines(lines: Iterable[str]) -> None:
    """Print lines to stdout. Never raise because of stdout's state.

    Characters outside its encoding are escaped. If its reader is gone, or it is closed or full, the rest is dropped.
    """
    stream = sys.stdout
    for line in lines:
        text = printable(line) + "\n"
        try:
            try:
                stream.write(text)
            except UnicodeEncodeError:
                encoding = stream.encoding or "ascii"
                stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
            stream.flush()
        except (OSError, ValueError, AttributeError):  # a broken pipe; closed; None
            _drop_the_rest(stream)
            return


def _drop_the_rest(stream: TextIO) -> None:
    """Keep the interpreter from failing at exit over unwritten output."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        number = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escape_json(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
