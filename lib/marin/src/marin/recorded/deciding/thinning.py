"""Reduce curves to the points that can be seen."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_BLOCK: Final = 32

Points = tuple[Sequence[float], Sequence[float]]
"""The steps of a curve, increasing, and their values."""


def thinned(points: Points, most: int) -> Points:
    """Return at most `most` points: the lowest and highest of each part of the curve, so that no spike is lost, and the
    last point.

    Args:
        points: A curve.
        most: At least 4.
    """
    steps, values = points
    if len(steps) <= most:
        return points
    parts = most // 2 - 1
    kept: list[int] = []
    for part in range(parts):
        start = len(steps) * part // parts
        piece = values[start : len(steps) * (part + 1) // parts]
        kept += sorted({start + piece.index(min(piece)), start + piece.index(max(piece))})
    if kept[-1] != len(steps) - 1:
        kept.append(len(steps) - 1)
    return array("d", map(steps.__getitem__, kept)), array("d", map(values.__getitem__, kept))


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve, and fewer points of it that have the lowest and the highest value of each block of points.

    Attributes:
        points: All points.
        outline: Those of each block; the same as `points` for a short curve.
    """

    points: Points
    outline: Points


def curve_of(points: Points) -> Curve:
    """Return a curve with its outline."""
    return Curve(points, thinned(points, max(2 * _BLOCK, 2 * len(points[0]) // _BLOCK)))


def on_columns(
    curves: Sequence[Curve], first: float | None, last: float | None, columns: int
) -> tuple[list[float], list[list[float | None]]]:
    """Return curves on common steps, which a chart draws without joining them: the steps, and each curve's values.

    All points of the window if there are at most two for each column of pixels; else the lowest and the highest value
    of each column, at two steps of the column, and the values at the window's end.

    Args:
        curves: The curves.
        first: The first step of the window; None for the first of all.
        last: The last step, likewise.
        columns: The number of columns.
    """
    known = [curve.points[0] for curve in curves if curve.points[0]]
    begin = min((steps[0] for steps in known), default=0.0) if first is None else first
    end = max((steps[-1] for steps in known), default=0.0) if last is None else last
    return _on_columns([_fitting(curve, begin, end, columns) for curve in curves], begin, end, columns)


def _fitting(curve: Curve, begin: float, end: float, columns: int) -> Points:
    """Return the outline if it has at least two points for each column of a window, else all points."""
    steps = curve.outline[0]
    many = bisect_right(steps, end) - bisect_left(steps, begin) >= 2 * columns
    return curve.outline if many else curve.points


def _on_columns(
    curves: Sequence[Points], begin: float, end: float, columns: int
) -> tuple[list[float], list[list[float | None]]]:
    spans = [(bisect_left(steps, begin), bisect_right(steps, end)) for steps, _ in curves]
    seen: set[float] = set()
    for (steps, _), (low, high) in zip(curves, spans, strict=True):
        # Lines go on to the points beyond the window.
        seen.update(steps[max(0, low - 1) : min(high + 1, low + 2 * columns + 1)])
        if len(seen) > 2 * columns:
            break
    else:
        shared = sorted(seen)
        return shared, [_at(shared, *curve) for curve in curves]
    width = (end - begin) / columns
    shared = [*(begin + width * (0.25 + 0.5 * half) for half in range(2 * columns)), end]
    edges = [begin + width * column for column in range(1, columns)]
    found = [_extremes(*curve, *span, edges) for curve, span in zip(curves, spans, strict=True)]
    return shared, [[*extremes, *_at([end], *curve)] for extremes, curve in zip(found, curves, strict=True)]


def _at(shared: Sequence[float], steps: Sequence[float], values: Sequence[float]) -> list[float | None]:
    places = ((step, bisect_left(steps, step)) for step in shared)
    return [values[place] if place < len(steps) and steps[place] == step else None for step, place in places]


def _extremes(
    steps: Sequence[float], values: Sequence[float], low: int, high: int, edges: Sequence[float]
) -> list[float | None]:
    """Return the two values of each column in the order in which the curve has them; None twice for an empty one."""
    found: list[float | None] = []
    for until in [*(bisect_left(steps, edge, low, high) for edge in edges), high]:
        piece = values[low:until]
        if piece:
            least, most = min(piece), max(piece)
            found += (least, most) if piece.index(least) <= piece.index(most) else (most, least)
        else:
            found += (None, None)
        low = until
    return found
