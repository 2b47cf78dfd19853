"""Read the numbers in TensorBoard's event files and in W&B's offline runs, without their libraries.

Event files are TFRecords (uint64 length, crc, data, crc) of `Event` protocol buffers: tensorflow/core/util/event.proto,
framework/summary.proto and framework/tensor.proto. Offline runs (`run-ID.wandb`) are LevelDB logs of `Record` protocol
buffers: wandb/proto/wandb_internal.proto. Checksums are not checked: what a kill has cut off ends the file.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, Final

from marin.recorded.reading.curve_rows import is_number

EVENT_FILE: Final = "events.out.tfevents."
"""The beginning of the names of event files."""
RUN_FILE: Final = ".wandb"
"""The end of the names of offline runs."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FLOAT, _DOUBLE = 1, 2
_RUN_HEADER, _BLOCK, _RECORD_HEADER = 7, 32_768, 7
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
Field = tuple[int, int, int | bytes]


def event_values(content: bytes) -> Iterator[tuple[int, str, float]]:
    """Yield the step, tag and value of each number in an event file's content, in order."""
    place = 0
    while place + 12 <= len(content):
        (length,) = struct.unpack_from("<Q", content, place)
        record = content[place + 12 : place + 12 + length]
        if len(record) < length:
            return
        place += 16 + length
        try:
            yield from _of_event(record)
        except (ValueError, IndexError, struct.error):
            return


def run_values(content: bytes) -> Iterator[tuple[int, str, float]]:
    """Yield the step, name and value of each number in the history of an offline run's content, in order."""
    for record in _log_records(content[_RUN_HEADER:]):
        try:
            histories = [value for number, _, value in _fields(record) if number == 2 and isinstance(value, bytes)]
            for history in histories:
                yield from _of_history(history)
        except (ValueError, IndexError, RecursionError):
            return


def _log_records(content: bytes) -> Iterator[bytes]:
    # The header of the file belongs to its first block.
    place, end, parts = 0, _BLOCK - _RUN_HEADER, b""
    while place + _RECORD_HEADER <= len(content):
        if end - place < _RECORD_HEADER:  # a block's last bytes, which hold no record
            place, end = end, end + _BLOCK
            continue
        length, kind = struct.unpack_from("<HB", content, place + 4)
        part = content[place + _RECORD_HEADER : place + _RECORD_HEADER + length]
        if len(part) < length or kind not in (_FULL, _FIRST, _MIDDLE, _LAST):
            return
        place += _RECORD_HEADER + length
        if place >= end:
            end += _BLOCK
        parts = part if kind in (_FULL, _FIRST) else parts + part
        if kind in (_FULL, _LAST):
            yield parts


def _of_history(content: bytes) -> Iterator[tuple[int, str, float]]:
    step, items = 0, []
    for number, _, value in _fields(content):
        if number == 1 and isinstance(value, bytes):
            items.append(value)
        elif number == 2 and isinstance(value, bytes):
            step = next((num for field, _, num in _fields(value) if field == 1 and isinstance(num, int)), 0)
    for item in items:
        names: list[str] = []
        text = ""
        for number, _, value in _fields(item):
            if isinstance(value, bytes) and number in (1, 2):
                names.append(value.decode("utf-8", "replace"))
            elif isinstance(value, bytes) and number == 16:
                text = value.decode("utf-8", "replace")
        found: Any = json.loads(text) if text else None
        name = ".".join(filter(None, names))
        # Names that begin with an underscore are W&B's own.
        if not name.startswith("_") and is_number(found):
            yield step, name, float(found)


def _of_event(record: bytes) -> Iterator[tuple[int, str, float]]:
    step, summaries = 0, []
    for number, _, value in _fields(record):
        if number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, _, value in _fields(summary):
            if number == 1 and isinstance(value, bytes):
                tag, found = _of_value(value)
                if found is not None and is_number(found):
                    yield step, tag, found


def _of_value(content: bytes) -> tuple[str, float | None]:
    tag, found = "", None
    for number, kind, value in _fields(content):
        if number == 1 and isinstance(value, bytes):
            tag = value.decode("utf-8", "replace")
        elif number == 2 and kind == _FIXED32 and isinstance(value, bytes):
            (found,) = struct.unpack("<f", value)
        elif number == 8 and isinstance(value, bytes):
            found = _of_tensor(value)
    return tag, found


def _of_tensor(content: bytes) -> float | None:
    """Return the value of a tensor with a single number; None for any other."""
    kind, packed = 0, b""
    for number, _, value in _fields(content):
        if number == 1 and isinstance(value, int):
            kind = value
        elif (number == 4 or (number, kind) in {(5, _FLOAT), (6, _DOUBLE)}) and isinstance(value, bytes):
            packed = value
    form = {_FLOAT: "<f", _DOUBLE: "<d"}.get(kind)
    if form is None or len(packed) != struct.calcsize(form):
        return None
    found: float = struct.unpack(form, packed)[0]
    return found


def _fields(content: bytes) -> Iterator[Field]:
    """Yield the number, wire type and value of each field of a protocol buffer. Raise ValueError for damage."""
    place = 0
    while place < len(content):
        key, place = _varint(content, place)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, place = _varint(content, place)
            yield number, kind, value
            continue
        if kind == _BYTES:
            length, place = _varint(content, place)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if place + length > len(content):
            raise ValueError("a field is cut off")
        yield number, kind, content[place : place + length]
        place += length


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")
