"""Create the preview of a file, reading only the shown part."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from typing import Any, BinaryIO, Final

from marin.browser.confined import Confined
from marin.browser.listing import Entry
from marin.browser.previews.preview import Kind, Preview, cell, hex_lines, is_text, kind_of, whole_characters
from marin.browser.previews.tables import array_preview, table_preview
from rigging.errors import InvalidRequest

PART_BYTES: Final = 64 << 10
_MOST_SKIPPED: Final = 64 << 20
_HEX_BYTES: Final = 512
_MOST_LINES: Final = 100
#: Larger images and pages are not sent to be shown; their first bytes are.
MOST_SHOWN: Final = 64 << 20


def make_preview(place: Confined, entry: Entry, start: int) -> Preview:
    """Return the preview of a file. It mentions damage.

    Args:
        place: The storage root.
        entry: The file.
        start: The start of the shown part: a byte offset in the (uncompressed) text, or a row group of a table.

    Raises:
        InvalidRequest: The file cannot be shown. The message says why.
    """
    kind, compression = kind_of(entry.name)
    if kind is Kind.TABLE:
        return table_preview(place, entry, start)
    if kind is Kind.ARRAY:
        return array_preview(place, entry)
    if kind in (Kind.HTML, Kind.IMAGE) and entry.size <= MOST_SHOWN:
        return Preview(kind)
    if compression is None:
        head = place.read(entry.name, start, start + PART_BYTES)
        more = start + len(head) < entry.size
    else:
        head, more = _decompressed(place, entry.name, compression, start)
    if not start and not is_text(head[:4096]):
        return Preview(Kind.BINARY, text=hex_lines(head[:_HEX_BYTES]), note="Not text. These are its first bytes.")
    if more:
        # Whole lines, so that the next part begins with one; a line longer than a part is cut.
        head = head[: head.rfind(b"\n") + 1] or whole_characters(head) or head
    before = max(0, start - PART_BYTES) if start else None
    after = start + len(head) if more else None
    if kind is Kind.JSON_LINES and head:
        return _json_lines(head, start, before, after)
    return Preview(Kind.TEXT, text=head.decode("utf-8", "backslashreplace"), before=before, after=after)


_OPENERS: Final[dict[str, Callable[[BinaryIO], Any]]] = {
    "gzip": lambda file: gzip.GzipFile(fileobj=file),
    "bz2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
}


def _decompressed(place: Confined, name: str, compression: str, start: int) -> tuple[bytes, bool]:
    """Return a part of a compressed file's content, and whether more follows. Only this part is in memory."""
    if start > _MOST_SKIPPED:
        raise InvalidRequest(f"start {start}: only the first {_MOST_SKIPPED} bytes can be shown")
    with place.open(name) as file:
        try:
            reader = _zstd(file) if compression == "zstd" else _OPENERS[compression](file)
            skipped = 0
            while skipped < start:
                piece = reader.read(min(PART_BYTES, start - skipped))
                if not piece:
                    break
                skipped += len(piece)
            content = _filled(reader, PART_BYTES + 1)
        except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
            raise InvalidRequest(f"{name} is damaged, or no {compression} file: {error}") from error
        except Exception as error:
            # zstandard has an error type of its own, and is loaded only when it is needed; zlib likewise.
            if type(error).__module__.partition(".")[0] not in ("zstandard", "zlib"):
                raise
            raise InvalidRequest(f"{name} is damaged, or no {compression} file: {error}") from error
    return content[:PART_BYTES], len(content) > PART_BYTES


def _zstd(file: BinaryIO) -> Any:
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(file)


def _filled(reader: Any, size: int) -> bytes:
    pieces = []
    while size > 0 and (piece := reader.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _json_lines(content: bytes, start: int, before: int | None, after: int | None) -> Preview:
    """Return a table if the lines are objects with few keys, else one record below the other."""
    lines = content.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    if len(lines) > _MOST_LINES:
        lines = lines[:_MOST_LINES]
        after = start + sum(len(line) + 1 for line in lines)
    records: list[Any] = []
    damaged = 0
    for line in lines:
        try:
            records.append(json.loads(line))
        except (ValueError, RecursionError):
            records.append(line.decode("utf-8", "backslashreplace"))
            damaged += 1
    note = f"{damaged} of these lines are not valid JSON, or truncated." if damaged else ""
    rows = [(str(number), _pretty(record)) for number, record in enumerate(records, 1)]
    return Preview(Kind.JSON_LINES, columns=("#", "record"), rows=rows, note=note, before=before, after=after)


def _pretty(record: Any) -> str:
    try:
        text = record if isinstance(record, str) else json.dumps(record, indent=1, ensure_ascii=False)
    except (ValueError, RecursionError):
        text = repr(type(record))
    return cell(text, 4000)
