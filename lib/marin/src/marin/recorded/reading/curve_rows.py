"""Collect the numbers in rows and lines of metrics into curves."""

from __future__ import annotations

import json
import math
import operator
import re
import sys
from array import array
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from marin.recorded.deciding.thinning import Points

STEP_NAMES: Final = ("step", "global_step", "_step", "iteration")
"""The columns with the step of a row, first come first."""

_LARGEST: Final = sys.float_info.max
_BLOCK_BYTES: Final = 64 << 10
_IN_NUMBERS: Final = b"0123456789+-.eE"
_NUMBER: Final = re.compile(rb'(?<=": )[-+.\deE]+(?=[,}])')
_MOST_COLUMNS: Final = 40

Curves = dict[str, Points]
"""The curve of each metric."""


def is_number(value: Any) -> bool:
    """Return whether a value is a number that a float can hold, so neither NaN nor infinity."""
    return type(value) in (float, int) and -_LARGEST <= value <= _LARGEST


def step_name(names: Container[str]) -> str | None:
    """Return the name of the column with the step; None without one."""
    for name in STEP_NAMES:
        if name in names:
            return name
    return None


class CurveRows:
    """Rows of numbers, in the order in which they were recorded."""

    def __init__(self) -> None:
        self._found: defaultdict[str, tuple[array[float], array[float]]] = defaultdict(lambda: (array("d"), array("d")))
        self._count = 0

    def add(self, name: str, step: float, value: float) -> None:
        """Add a value of a metric."""
        steps, values = self._found[name]
        steps.append(step)
        values.append(value)

    def add_rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add the numbers of rows. One without a step counts by its place."""
        found = self._found
        for row in rows:
            key = step_name(row)
            step = int(row[key] if key is not None and is_number(row[key]) else self._count)
            self._count += 1
            for name, value in row.items():
                if name != key and is_number(value):
                    steps, values = found[name]
                    steps.append(step)
                    values.append(value)

    def add_lines(self, lines: bytes) -> None:
        """Add the objects of whole lines of JSON. A line that a kill has cut off, or a note, is no object."""
        for block in _blocks(lines):
            columns = _columns(block)
            if columns is None:
                self.add_rows(rows_of(block))
                continue
            steps = columns.pop(step_name(columns) or "")
            self._count += len(steps)
            for name, column in columns.items():
                self._found[name][0].extend(steps)
                self._found[name][1].extend(column)

    def curves(self) -> Curves:
        """Return the points by step. A step that was repeated has its last value."""
        return {name: _by_step(*points) for name, points in self._found.items()}


def _blocks(lines: bytes) -> Iterator[bytes]:
    """Yield lines in blocks of a size that costs about a millisecond."""
    start = 0
    while start < len(lines):
        end = lines.find(b"\n", start + _BLOCK_BYTES) + 1 or len(lines)
        yield lines[start:end]
        start = end


def rows_of(block: bytes) -> list[Mapping[str, Any]]:
    """Return the objects of lines of JSON, without lines that are none."""
    return _objects([line for line in block.decode("utf-8", "replace").split("\n") if line])


def _objects(lines: Sequence[str]) -> list[Mapping[str, Any]]:
    # Many lines at once take a third of the time.
    try:
        found = json.loads(f"[{','.join(lines)}]")
    except (ValueError, RecursionError):
        half = len(lines) // 2
        return [*_objects(lines[:half]), *_objects(lines[half:])] if half else []
    return [row for row in found if isinstance(row, dict)]


def _columns(block: bytes) -> dict[str, Sequence[float]] | None:
    """Return the columns of lines as `marin.metrics.log` writes them, if all have the same names; None for others.

    Whatever the first line has between its numbers, its names among them, becomes one byte each in all lines. If then
    all lines are the same but for numbers, these are parsed as one list, in half the time of objects.
    """
    first = block[: block.find(b"\n") + 1]
    between = _NUMBER.split(first)
    width = len(between) - 1
    if not 2 <= width <= _MOST_COLUMNS or not block.isascii():
        return None
    signs = bytes(range(0x80, 0x81 + width))
    for number, part in enumerate(between):
        block = block.replace(part, signs[number : number + 1])
    if block.translate(None, _IN_NUMBERS) != signs * block.count(signs[-1:]):
        return None
    commas = bytes.maketrans(signs[:width], b"," * width)
    try:
        names = [*json.loads(first)]
        flat = json.loads(f"[{block.translate(commas, signs[-1:])[1:].decode()}]")
        columns = {name: flat[number::width] for number, name in enumerate(names)}
        steps = columns.get(step_name(columns) or "", ())
        is_fit = len(columns) == width and math.isfinite(sum(flat)) and set(map(type, steps)) == {int}
    except (ValueError, OverflowError):  # numbers that JSON does not have, or no float
        return None
    return columns if is_fit else None


def _by_step(steps: array[float], values: array[float]) -> tuple[array[float], array[float]]:
    if all(map(operator.lt, steps, islice(steps, 1, None))):
        return steps, values
    known = dict(zip(steps, values, strict=True))
    steps = array("d", sorted(known))
    return steps, array("d", map(known.__getitem__, steps))
