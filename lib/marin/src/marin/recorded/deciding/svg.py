"""A run's graph as an SVG picture for a browser, with names as text and a detailed tooltip on each node."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from marin.recorded.deciding.dag import Node
from marin.recorded.deciding.drawing import BOX, CHARACTER, Box, draw
from rigging.text.printable import printable_line
from rigging.text.tables import duration
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
_GAP: Final = 90
_MARGIN: Final = 20
_HEADER: Final = 34
_LONGEST: Final = 48
_MOST_PATHS: Final = 20


def svg_of(nodes: Sequence[Node], title: str) -> str:
    """Return the picture as an XML document.

    Args:
        nodes: The nodes, earlier layers first.
        title: A title above them.
    """
    places = place_nodes({node.id: node.layer for node in nodes}, {node.id: node.needs for node in nodes})
    rows = {node: place.row for node, place in places.items()}
    drawing = draw(nodes, rows, longest=_LONGEST, gap=_GAP, margin=_MARGIN, header=_HEADER)
    width = max(drawing.width, len(title) * CHARACTER + 2 * _MARGIN)
    height = drawing.height
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="12">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        f'<text x="{_MARGIN}" y="{_MARGIN + 4}" font-weight="bold">{escape(printable_line(title))}</text>',
        '<g fill="none" stroke="#90a4ae" stroke-opacity="0.6">',
    ]
    lines += drawing.edges(nodes)
    lines.append("</g>")
    for node in nodes:
        lines += _box(node, drawing.boxes[node.id])
    return "\n".join([*lines, "</svg>", ""])


def _box(node: Node, box: Box) -> list[str]:
    colour = _COLOURS.get(node.status, _OTHER)
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(node.statuses.items()))
    told = [node.label, statuses, duration(node.seconds), *node.paths[:_MOST_PATHS]]
    if len(node.paths) > _MOST_PATHS:
        told.append(f"and {len(node.paths) - _MOST_PATHS} more")
    return [
        f'<g class="node"><title>{escape(chr(10).join(printable_line(line) for line in told))}</title>',
        f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="{BOX}" rx="4" '
        f'fill="{colour}" fill-opacity="0.12" '
        f'stroke="{colour}"{" stroke-width=" + chr(34) + "2" + chr(34) if len(node.paths) > 1 else ""}/>',
        f'<text x="{box.x + 8:.0f}" y="{box.y + 14:.0f}">{escape(box.text)}</text></g>',
    ]
