"""A run's graph as an SVG picture, for a browser: names as text, a tooltip with all that is known at each node."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from marin.recorded.deciding.dag import Node
from rigging.printable import printable_line
from rigging.tables import duration
from rigging.web.layout import place_nodes

_COLOURS: Final = {
    "succeeded": "#2e7d32",
    "cached": "#78909c",
    "failed": "#c62828",
    "lost": "#c62828",
    "died": "#c62828",
    "dep_failed": "#ef6c00",
    "stopped": "#ef6c00",
    "running": "#1565c0",
    "retrying": "#f9a825",
    "queued": "#9e9e9e",
}
_OTHER: Final = "#9e9e9e"
_ROW: Final = 26
_BOX: Final = 20
_GAP: Final = 90
_MARGIN: Final = 20
_HEADER: Final = 34
_CHARACTER: Final = 7.3
_LONGEST: Final = 48
_MOST_PATHS: Final = 20


def svg_of(nodes: Sequence[Node], title: str) -> str:
    """Return the picture, as one XML document.

    Args:
        nodes: The nodes, those of earlier layers first.
        title: A line above them.
    """
    places = place_nodes({node.id: node.layer for node in nodes}, {node.id: node.needs for node in nodes})
    widths: dict[int, float] = {}
    for node in nodes:
        widths[node.layer] = max(widths.get(node.layer, 0.0), len(_shown(node)) * _CHARACTER + 16)
    left: dict[int, float] = {}
    x = float(_MARGIN)
    for layer in sorted(widths):
        left[layer] = x
        x += widths[layer] + _GAP
    top = {node.id: _HEADER + _MARGIN + places[node.id].row * _ROW for node in nodes}
    width = max(x - _GAP + _MARGIN, len(title) * _CHARACTER + 2 * _MARGIN)
    height = max(top.values(), default=_HEADER) + _BOX + _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="12">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        f'<text x="{_MARGIN}" y="{_MARGIN + 4}" font-weight="bold">{_text(title)}</text>',
        '<g fill="none" stroke="#90a4ae" stroke-opacity="0.6">',
    ]
    right = {node.id: left[node.layer] + len(_shown(node)) * _CHARACTER + 16 for node in nodes}
    for node in nodes:
        for need in node.needs:
            lines.append(_edge(right[need], top[need] + _BOX / 2, left[node.layer], top[node.id] + _BOX / 2))
    lines.append("</g>")
    for node in nodes:
        lines += _box(node, left[node.layer], top[node.id], right[node.id] - left[node.layer])
    return "\n".join([*lines, "</svg>", ""])


def _edge(x: float, y: float, to_x: float, to_y: float) -> str:
    bend = max((to_x - x) / 2, 20)
    return f'<path d="M{x:.0f} {y:.0f}C{x + bend:.0f} {y:.0f} {to_x - bend:.0f} {to_y:.0f} {to_x:.0f} {to_y:.0f}"/>'


def _box(node: Node, x: float, y: float, width: float) -> list[str]:
    colour = _COLOURS.get(node.status, _OTHER)
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(node.statuses.items()))
    told = [node.label, statuses, duration(node.seconds), *node.paths[:_MOST_PATHS]]
    if len(node.paths) > _MOST_PATHS:
        told.append(f"and {len(node.paths) - _MOST_PATHS} more")
    return [
        f'<g class="node"><title>{escape(chr(10).join(printable_line(line) for line in told))}</title>',
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{_BOX}" rx="4" fill="{colour}" fill-opacity="0.12" '
        f'stroke="{colour}"{" stroke-width=" + chr(34) + "2" + chr(34) if len(node.paths) > 1 else ""}/>',
        f'<text x="{x + 8:.0f}" y="{y + 14:.0f}">{_text(_shown(node))}</text></g>',
    ]


def _shown(node: Node) -> str:
    """Return a label that fits: the end of a name says more than its middle."""
    label = node.label
    if len(label) <= _LONGEST:
        return label
    half = (_LONGEST - 1) // 2
    return f"{label[:half]}…{label[-half:]}"


def _text(text: str) -> str:
    return escape(printable_line(text))
