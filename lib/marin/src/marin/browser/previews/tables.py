"""Previews of Parquet tables and NumPy arrays. Both libraries are imported on use."""

from __future__ import annotations

import io
from typing import Any, Final

from marin.browser.confined import Confined
from marin.browser.listing import Entry
from marin.browser.previews.preview import Kind, Preview, cell
from rigging.errors import InvalidRequest
from rigging.extras import needing

_ROWS: Final = 50
_COLUMNS: Final = 40
_NAMED: Final = 60
_ARRAY_ROWS: Final = 24
_ARRAY_COLUMNS: Final = 16
_HEADER_BYTES: Final = 64 << 10
_MOST_ROW_BYTES: Final = 8 << 20
_MOST_GROUP_BYTES: Final = 256 << 20


def table_preview(place: Confined, entry: Entry, group: int) -> Preview:
    """Return the schema of a Parquet file and the first rows of a row group.

    Args:
        place: The storage root.
        entry: The file.
        group: The row group; the last one if there are fewer.

    Raises:
        InvalidRequest: The file is damaged.
        MissingExtra: pyarrow is not installed.
    """
    with needing("previews", "what is in a table"):
        import pyarrow
        from pyarrow import parquet
    with place.open(entry.name) as file:
        try:
            # Only what is shown is read, column by column.
            table = parquet.ParquetFile(file, pre_buffer=False, buffer_size=1 << 16)
            return _shown_table(table, group)
        except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
            raise InvalidRequest(f"{entry.name} cannot be shown as a table: {str(error)[:300]}") from error


def _shown_table(table: Any, group: int) -> Preview:
    metadata = table.metadata
    names = list(table.schema_arrow.names)
    types = [str(kind) for kind in table.schema_arrow.types]
    facts = [
        ("rows", f"{metadata.num_rows:,}"),
        ("columns", str(len(names))),
        ("row groups", str(metadata.num_row_groups)),
        ("written by", cell(metadata.created_by or "-")),
    ]
    if not metadata.num_row_groups:
        return Preview(Kind.TABLE, facts, columns=[f"{a} : {cell(b, 60)}" for a, b in zip(names, types, strict=True)])
    group = min(group, metadata.num_row_groups - 1)
    size = metadata.row_group(group).total_byte_size
    if size > _MOST_GROUP_BYTES:
        note = f"A row group has {size:,} bytes, more than a page reads ({_MOST_GROUP_BYTES:,})."
        return Preview(
            Kind.TABLE, facts, columns=["column", "type"], rows=list(zip(names, types, strict=True)), note=note
        )
    rows: list[list[str]] = []
    shown = names[:_COLUMNS]
    for batch in table.iter_batches(_ROWS, row_groups=[group], columns=shown or None, use_threads=False):
        columns = [batch.column(number) for number in range(batch.num_columns)]
        rows = [[cell(_value(column, row)) for column in columns] for row in range(min(batch.num_rows, _ROWS))]
        break
    span = f"Rows 1–{len(rows)}" if rows else "No rows"
    notes = [f"{span} of row group {group + 1} of {metadata.num_row_groups}."]
    if len(names) > _COLUMNS:
        others = names[_COLUMNS : _COLUMNS + _NAMED]
        rest = ", …" if len(names) > _COLUMNS + _NAMED else "."
        notes.append(f"{len(names) - _COLUMNS} more columns: {', '.join(others)}{rest}")
    return Preview(
        Kind.TABLE,
        facts,
        columns=[f"{name} : {cell(kind, 60)}" for name, kind in zip(shown, types, strict=False)],
        rows=rows,
        note=" ".join(notes),
        before=group - 1 if group else None,
        after=group + 1 if group + 1 < metadata.num_row_groups else None,
    )


def _shown_value(value: Any) -> str:
    return f"{value:.6g}" if value.dtype.kind == "f" else cell(value)


def _value(column: Any, row: int) -> Any:
    import pyarrow

    if pyarrow.types.is_temporal(column.type):
        # Arrow writes every time; Python has none before the year 1, and pandas would be imported for nanoseconds.
        return _written(column, row)
    try:
        value = column[row].as_py()
    except (ValueError, OverflowError, pyarrow.ArrowException):  # a time within a list or struct
        return _written(column, row)
    return "" if value is None else value


def _written(column: Any, row: int) -> str:
    """Return a value in Arrow's own format."""
    if not column[row].is_valid:
        return ""
    text: str = column.slice(row, 1).to_string(indent=0)
    return text.strip().removeprefix("[").removesuffix("]").strip()


def array_preview(place: Confined, entry: Entry) -> Preview:
    """Return the shape, type and first values of a `.npy` file.

    Raises:
        InvalidRequest: The file is damaged, or contains pickled objects.
        MissingExtra: numpy is not installed.
    """
    with needing("previews", "what is in an array"):
        import numpy
        from numpy.lib import format as npy
    head = io.BytesIO(place.read(entry.name, 0, _HEADER_BYTES))
    try:
        version = npy.read_magic(head)
        reader = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
        if reader is None:
            raise ValueError(f"version {version} of the format is unknown")
        shape, is_fortran, kind = reader(head)
        if any(length < 0 for length in shape):
            raise ValueError(f"shape {shape} has a length below 0")
    except (ValueError, EOFError, OverflowError, SyntaxError, TypeError, MemoryError) as error:
        raise InvalidRequest(f"{entry.name} is damaged, or no .npy file: {str(error)[:200]}") from error
    count = 1
    for length in shape:
        count *= length
    facts = [("shape", " × ".join(map(str, shape)) or "one value"), ("type", cell(str(kind))), ("values", f"{count:,}")]
    if kind.hasobject:
        return Preview(Kind.ARRAY, facts, note="Pickled objects are never loaded.")
    width = count // shape[0] if count and shape else 1
    start, row_bytes = head.tell(), width * kind.itemsize
    if not count or not kind.itemsize or (row_bytes > _MOST_ROW_BYTES and not is_fortran):
        return Preview(Kind.ARRAY, facts, note="" if not count else "A row is too long to show.")
    height, shown = shape[0] if shape else 1, min(width, _ARRAY_COLUMNS)
    wanted = min(_ARRAY_ROWS, height)
    if is_fortran:  # its columns lie one behind the other
        parts = [
            place.read(entry.name, at, at + wanted * kind.itemsize)
            for at in range(start, start + shown * height * kind.itemsize, height * kind.itemsize)
        ]
        got = min(len(part) for part in parts) // kind.itemsize
        columns = [numpy.frombuffer(part[: got * kind.itemsize], dtype=kind) for part in parts]
    else:
        content = place.read(entry.name, start, start + wanted * row_bytes)
        got = len(content) // row_bytes
        values = numpy.frombuffer(content[: got * row_bytes], dtype=kind).reshape(got, width)
        columns = [values[:, number] for number in range(shown)]
    rows = [[str(number), *(_shown_value(column[number]) for column in columns)] for number in range(got)]
    notes = [f"The first {got} of {height} rows"] if got < height else []
    if width > shown:
        notes.append(f"the first {shown} of {width} values of each")
    if got < wanted:
        notes.append("the file is cut")
    return Preview(Kind.ARRAY, facts, columns=["", *map(str, range(shown))], rows=rows, note=", ".join(notes))
