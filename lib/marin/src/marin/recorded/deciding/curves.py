"""Curves of metrics as characters for a terminal, and as an SVG picture."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import compress
from typing import Final

from marin.recorded.deciding.thinning import Points, thinned
from rigging.errors import InvalidRequest
from rigging.text.printable import printable_line

_SIGNS: Final = string.ascii_letters
_COLOURS: Final = ("#1565c0", "#c62828", "#2e7d32", "#ef6c00", "#6a1b9a", "#00838f", "#795548", "#ad1457")
_MOST_POINTS: Final = 2000
_LEFT, _TOP, _WIDE, _HIGH, _LINE = 90, 40, 800, 400, 18


@dataclass(frozen=True, slots=True)
class Curve:
    """A metric of one output.

    Attributes:
        label: The words of the legend.
        points: The steps, increasing, and their values.
    """

    label: str
    points: Points


@dataclass(frozen=True, slots=True)
class _Frame:
    """The part of the plane that holds all points."""

    first: float
    last: float
    low: float
    high: float
    is_log: bool

    def place(self, step: float, value: float) -> tuple[float, float]:
        """Return a point's place: from 0 at the left or bottom to 1."""
        value = math.log10(value) if self.is_log else value
        return _share(step, self.first, self.last), _share(value, self.low, self.high)

    def value(self, share: float) -> str:
        """Return the value at a height from 0 to 1, as text."""
        value = self.low * (1 - share) + self.high * share
        return f"{10**value if self.is_log else value:.4g}"


def text_chart(curves: Sequence[Curve], width: int, height: int, *, is_log: bool = False) -> list[str]:
    """Return the lines of a chart, with a legend below. Each curve has its own letter; later curves cover earlier ones.

    Args:
        curves: The curves.
        width: The columns of the terminal.
        height: The lines of the plane.
        is_log: Whether values have a logarithmic scale; then only those above 0 are drawn.

    Raises:
        InvalidRequest: There are more curves than letters, or nothing to draw.
    """
    if len(curves) > len(_SIGNS):
        raise InvalidRequest(f"{len(curves)} curves: a terminal shows at most {len(_SIGNS)}; write --svg FILE instead")
    frame = _frame(curves, is_log)
    names = {0: frame.value(1), height // 2: frame.value(1 - height // 2 / (height - 1)), height - 1: frame.value(0)}
    margin = max(map(len, names.values()))
    across = max(20, width - margin - 2)
    cells = [[" "] * across for _ in range(height)]
    for sign, curve in zip(_SIGNS, curves, strict=False):
        for step, value in zip(*_points(curve, is_log), strict=True):
            right, up = frame.place(step, value)
            cells[round((1 - up) * (height - 1))][round(right * (across - 1))] = sign
    lines = [f"{names.get(row, ''):>{margin}} |{''.join(line)}".rstrip() for row, line in enumerate(cells)]
    first, last = f"{frame.first:.10g}", f"{frame.last:.10g}"
    below = [f"{'':>{margin}} +{'-' * across}", f"{'':>{margin}}  {first}{last:>{max(1, across - len(first))}}"]
    return [*lines, *below, *(f"{sign}  {curve.label}" for sign, curve in zip(_SIGNS, curves, strict=False))]


def svg_chart(curves: Sequence[Curve], title: str, *, is_log: bool = False) -> str:
    """Return the chart as an XML document.

    Args:
        curves: The curves.
        title: A title above them.
        is_log: As in `text_chart`.

    Raises:
        InvalidRequest: There is nothing to draw.
    """
    frame = _frame(curves, is_log)
    width, height = _LEFT + _WIDE + 30, _TOP + _HIGH + 50 + _LINE * len(curves)
    bottom = _TOP + _HIGH
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="monospace" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="24" font-weight="bold">{escape(printable_line(title))}</text>',
    ]
    for quarter in range(5):
        y = bottom - _HIGH * quarter / 4
        lines.append(f'<path d="M{_LEFT},{y:.0f}h{_WIDE}" stroke="#cfd8dc"/>')
        lines.append(f'<text x="{_LEFT - 8}" y="{y + 4:.0f}" text-anchor="end">{frame.value(quarter / 4)}</text>')
    lines.append(f'<text x="{_LEFT}" y="{bottom + 18}">{frame.first:.10g}</text>')
    lines.append(f'<text x="{_LEFT + _WIDE}" y="{bottom + 18}" text-anchor="end">{frame.last:.10g}</text>')
    for number, curve in enumerate(curves):
        turn, hue = divmod(number, len(_COLOURS))
        colour, label = _COLOURS[hue], escape(printable_line(curve.label))
        dashes = f' stroke-dasharray="{8 * turn},6"' if turn else ""
        steps, values = thinned(_points(curve, is_log), _MOST_POINTS)
        places = [frame.place(step, value) for step, value in zip(steps, values, strict=True)]
        # The last point twice: with round ends a single point is visible.
        path = " ".join(f"{_LEFT + right * _WIDE:.1f},{bottom - up * _HIGH:.1f}" for right, up in places + places[-1:])
        look = f'fill="none" stroke="{colour}" stroke-width="2" stroke-linecap="round"{dashes}'
        lines.append(f'<path d="{path and "M"}{path}" {look}><title>{label}</title></path>')
        y = bottom + 44 + _LINE * number
        lines.append(f'<path d="M{_LEFT},{y - 4}h20" {look}/>')
        lines.append(f'<text x="{_LEFT + 28}" y="{y}">{label}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _frame(curves: Sequence[Curve], is_log: bool) -> _Frame:
    points = [_points(curve, is_log) for curve in curves]
    steps, values = ([number for each in points for number in each[part]] for part in (0, 1))
    if not steps:
        raise InvalidRequest("there is no value to draw" + (" above 0, which --log needs" if is_log else ""))
    low, high = min(values), max(values)
    if is_log:
        low, high = math.log10(low), math.log10(high)
    return _Frame(min(steps), max(steps), low, high, is_log)


def _points(curve: Curve, is_log: bool) -> Points:
    if not is_log:
        return curve.points
    above = [value > 0 for value in curve.points[1]]
    return [*compress(curve.points[0], above)], [*compress(curve.points[1], above)]


def _share(value: float, low: float, high: float) -> float:
    # Halves, because the difference of two floats may be no float.
    return 0.5 if low == high else (value / 2 - low / 2) / (high / 2 - low / 2)
