"""Comparison of two files by content: numbers within a tolerance, everything else exactly. Pure."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Callable, Iterator
from itertools import islice, zip_longest
from typing import Any, AnyStr, Final

_SHOWN: Final = 3
_SHOWN_CHARACTERS: Final = 60
_MISSING: Final = object()

Differences = Iterator[str]


def compare(name: str, before: bytes, after: bytes, tolerance: float) -> list[str]:
    """Describe up to three differences of two files; [] if their contents are equal.

    JSON, JSON lines, CSV, NumPy and Parquet files are compared by value, also below `.gz`; others by line or byte.

    Args:
        name: The file's name, which determines the format.
        before: One content.
        after: The other.
        tolerance: The difference allowed between two numbers: absolute up to 1, relative above.
    """
    if name.endswith(".gz"):
        try:
            return compare(name.removesuffix(".gz"), gzip.decompress(before), gzip.decompress(after), tolerance)
        except (OSError, EOFError):
            return _first(_raw(before, after))
    read = _FORMATS.get(name.rpartition(".")[2])
    if read is None:
        return _first(_raw(before, after))
    try:
        return _first(read(before, after, tolerance))
    except ImportError as error:
        return [*_first(_raw(before, after)), f"not compared by value, because {error.name} is not installed"]
    # A damaged file; the readers raise errors of many types.
    except Exception as error:
        return [*_first(_raw(before, after)), f"not compared by value: {type(error).__name__}: {error}"[:200]]


def is_close(before: float, after: float, tolerance: float) -> bool:
    """Return whether two numbers are equal within a tolerance; NaN equals NaN."""
    if before == after or (before != before and after != after):
        return True
    try:
        return abs(before - after) <= tolerance * max(1, abs(before), abs(after)) < math.inf
    except OverflowError:  # whole numbers beyond those of floating point
        return False


def _first(found: Differences) -> list[str]:
    shown = list(islice(found, _SHOWN + 1))
    return [*shown[:_SHOWN], "and more"] if len(shown) > _SHOWN else shown


def _said(where: str, before: object, after: object) -> str:
    if isinstance(before, str) and isinstance(after, str) and max(len(before), len(after)) > _SHOWN_CHARACTERS:
        start = max(0, _first_unequal(before, after) - _SHOWN_CHARACTERS // 3)
        before, after = (f"...{text[start:]}" if start else text for text in (before, after))
    return f"{where}: {_text(before)} -> {_text(after)}"


def _text(value: object) -> str:
    if value is _MISSING:
        return "missing"
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 3]}..."


def _values(where: str, before: Any, after: Any, tolerance: float) -> Differences:
    """Yield where two JSON values differ."""
    if _is_number(before) and _is_number(after):
        if not is_close(before, after, tolerance):
            yield _said(where or "value", before, after)
    elif isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            one, other = before.get(key, _MISSING), after.get(key, _MISSING)
            yield from _values(f"{where}.{key}" if where else str(key), one, other, tolerance)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _values(f"{where}[{index}]", one, other, tolerance)
    elif isinstance(before, list) and isinstance(after, list):
        yield f"{where or 'value'}: {len(before):,} -> {len(after):,} items"
    elif type(before) is not type(after) or before != after:
        yield _said(where or "value", before, after)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _json(before: bytes, after: bytes, tolerance: float) -> Differences:
    return _values("", json.loads(before), json.loads(after), tolerance)


def _json_lines(before: bytes, after: bytes, tolerance: float) -> Differences:
    for number, (one, other) in enumerate(zip_longest(before.splitlines(), after.splitlines()), 1):
        if one is None or other is None:
            yield _said(f"line {number}", *(_MISSING if line is None else line.decode() for line in (one, other)))
            return
        if one != other:
            for found in _values("", json.loads(one), json.loads(other), tolerance):
                yield f"line {number}, {found}"


def _csv(before: bytes, after: bytes, tolerance: float) -> Differences:
    one, other = (list(csv.reader(io.StringIO(content.decode(), newline=""))) for content in (before, after))
    heads = one[0] if one else []
    for number, (old, new) in enumerate(zip_longest(one, other), 1):
        if old is None or new is None or len(old) != len(new):
            yield _said(f"line {number}", *(_MISSING if row is None else ",".join(row) for row in (old, new)))
            return
        for column, (a, b) in enumerate(zip(old, new, strict=True)):
            if a != b and not _are_close(a, b, tolerance):
                yield _said(f"line {number}, {heads[column] if column < len(heads) else column}", a, b)


def _are_close(before: str, after: str, tolerance: float) -> bool:
    try:
        return is_close(float(before), float(after), tolerance)
    except ValueError:
        return False


def _arrays(before: bytes, after: bytes, tolerance: float) -> Differences:
    """Yield where two .npy or .npz files differ."""
    import numpy

    one, other = (numpy.load(io.BytesIO(content), allow_pickle=False) for content in (before, after))
    if isinstance(one, numpy.ndarray) and isinstance(other, numpy.ndarray):
        yield from _array("", one, other, tolerance)
        return
    for name in dict.fromkeys([*one, *other]):
        if name not in one or name not in other:
            yield f"{name}: only {'before' if name in one else 'after'}"
        else:
            yield from _array(name, one[name], other[name], tolerance)


def _array(where: str, before: Any, after: Any, tolerance: float) -> Differences:
    import numpy

    if (before.dtype, before.shape) != (after.dtype, after.shape):
        yield f"{where or 'array'}: {before.dtype} {before.shape} -> {after.dtype} {after.shape}"
        return
    same = before == after
    if before.dtype.kind in "fc":
        with numpy.errstate(all="ignore"):
            most = numpy.maximum(1, numpy.maximum(abs(before), abs(after)))
            same |= (abs(before - after) <= tolerance * most) & numpy.isfinite(most)
        same |= numpy.isnan(before) & numpy.isnan(after)
    elif before.dtype.kind in "iu":
        # As the numbers of other formats: differences of unsigned ones would wrap.
        wide = [array.astype(numpy.float64) for array in (before, after)]
        same |= abs(wide[0] - wide[1]) <= tolerance * numpy.maximum(1, numpy.maximum(*map(abs, wide)))
    wrong = numpy.argwhere(~numpy.asarray(same))
    for index in wrong[:1]:
        place = f"{where}[{', '.join(map(str, index))}]"
        count = f"; {len(wrong):,} of {before.size:,} differ" if len(wrong) > 1 else ""
        yield _said(place, before[tuple(index)].item(), after[tuple(index)].item()) + count


def _tables(before: bytes, after: bytes, tolerance: float) -> Differences:
    """Yield where two Parquet files differ, by column and row."""
    from pyarrow import parquet

    one, other = (parquet.read_table(io.BytesIO(content)) for content in (before, after))
    if not one.schema.equals(other.schema):
        schemas = [{field.name: str(field.type) for field in table.schema} for table in (one, other)]
        yield from _values("schema", schemas[0], schemas[1], 0.0)
        if schemas[0] == schemas[1] and list(schemas[0]) != list(schemas[1]):
            yield "schema: the columns are in another order"
        return
    for name in one.column_names:
        if not one[name].equals(other[name]):
            yield from _values(str(name), one[name].to_pylist(), other[name].to_pylist(), tolerance)


def _raw(before: bytes, after: bytes) -> Differences:
    """Yield the first line in which two texts differ, or the first byte of other files."""
    if before == after:
        return
    try:
        lines = [content.decode().splitlines(keepends=True) for content in (before, after)]
    except UnicodeDecodeError:
        lines = []
    if lines and b"\0" not in before[:1024]:
        for number, (one, other) in enumerate(zip_longest(*lines, fillvalue=_MISSING), 1):
            if one != other:
                yield _said(f"line {number}", one, other)
                return
    size = f" ({len(before):,} -> {len(after):,} bytes)" if len(before) != len(after) else ""
    yield f"byte {_first_unequal(before, after):,}{size}"


def _first_unequal(before: AnyStr, after: AnyStr) -> int:
    low, high = 0, min(len(before), len(after))
    while low < high:  # the longest common beginning, by halves: a loop over bytes takes a second for 20 MB
        middle = (low + high + 1) // 2
        if before[low:middle] == after[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


_FORMATS: Final[dict[str, Callable[[bytes, bytes, float], Differences]]] = {
    "artifact": _json,
    "json": _json,
    "jsonl": _json_lines,
    "csv": _csv,
    "npy": _arrays,
    "npz": _arrays,
    "parquet": _tables,
}
