"""The kind of a file, by its name and first bytes, and the content of a preview. Pure."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class Kind(StrEnum):
    """The kind of preview of a file."""

    TEXT = "text"
    JSON_LINES = "jsonl"
    TABLE = "table"
    ARRAY = "array"
    IMAGE = "image"
    HTML = "html"
    BINARY = "binary"


#: Endings of compressed files, with the compression.
COMPRESSIONS: Final = {"gz": "gzip", "zst": "zstd", "bz2": "bz2", "xz": "xz"}
_KINDS: Final = {
    "jsonl": Kind.JSON_LINES,
    "ndjson": Kind.JSON_LINES,
    "parquet": Kind.TABLE,
    "npy": Kind.ARRAY,
    "png": Kind.IMAGE,
    "jpg": Kind.IMAGE,
    "jpeg": Kind.IMAGE,
    "gif": Kind.IMAGE,
    "webp": Kind.IMAGE,
    "svg": Kind.IMAGE,
    "html": Kind.HTML,
    "htm": Kind.HTML,
}
#: Media types of files that a browser shows itself; no others are sent as anything but a download.
MEDIA_TYPES: Final = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "svg": "image/svg+xml",
    "html": "text/html; charset=utf-8",
    "htm": "text/html; charset=utf-8",
}
#: Bytes that text does not have: controls, but for tab, line and page breaks, backspace and the beginning of colours.
_CONTROLS: Final = bytes(byte for byte in range(32) if byte not in b"\t\n\r\f\b\x1b") + b"\x7f"
_UNCOMPRESSED_ONLY: Final = (Kind.TABLE, Kind.ARRAY, Kind.IMAGE, Kind.HTML)


@dataclass(frozen=True, slots=True)
class Preview:
    """Preview of a file on a page.

    Attributes:
        kind: The kind of preview.
        facts: Names and values of facts about it.
        text: Its text, for `TEXT` and `BINARY`.
        columns: Headers, for tables, arrays and JSON lines.
        rows: The cells.
        note: A note about omitted content.
        before: The start of the previous part; None if this is the first.
        after: The start of the next part; None if this is the last.
    """

    kind: Kind
    facts: Sequence[tuple[str, str]] = ()
    text: str = ""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    note: str = ""
    before: int | None = None
    after: int | None = None


def kind_of(name: str) -> tuple[Kind | None, str | None]:
    """Return the kind and compression of a file by its name; None if its content must decide.

    Args:
        name: The file's name.
    """
    stem, _, ending = name.lower().rpartition("/")[2].rpartition(".")
    compression = COMPRESSIONS.get(ending)
    if compression is None:
        return _KINDS.get(ending), None
    kind = _KINDS.get(stem.rpartition(".")[2])
    return (None if kind in _UNCOMPRESSED_ONLY else kind), compression


def is_text(head: bytes) -> bool:
    """Return whether the beginning of a file looks like text, in any encoding, with at most a few damaged bytes."""
    if b"\0" in head:
        return False
    controls = len(head) - len(head.translate(None, _CONTROLS))
    damaged = head.decode("utf-8", "replace").count("\ufffd")
    # Of random or compressed bytes about every tenth is a control, and two of five are no UTF-8.
    return controls * 50 <= len(head) and damaged * 3 <= len(head)


def whole_characters(content: bytes) -> bytes:
    """Return content without an incomplete character at its end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(content)
    rest, _ = decoder.getstate()
    return content[: len(content) - len(rest)]


def cell(value: Any, longest: int = 200) -> str:
    """Return a value as the cell of a table."""
    if isinstance(value, bytes):
        value = f"{len(value)} bytes: {value[:24].hex(' ')}"
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters)"


def hex_lines(content: bytes) -> str:
    """Return bytes as lines of sixteen, in hexadecimal and as printable characters."""
    lines = []
    for start in range(0, len(content), 16):
        part = content[start : start + 16]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{start:08x}  {part.hex(' '):<47}  {shown}")
    return "\n".join(lines)
