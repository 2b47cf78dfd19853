"""The layout and labels of the boxes and lines in a run's SVG graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from marin.recorded.deciding.dag import Node
from rigging.text.printable import printable_line

BOX: Final = 20
"""Height of a node."""
CHARACTER: Final = 7.3
"""Width of a character."""
_ROW: Final = 26


@dataclass(frozen=True, slots=True)
class Box:
    """The position of a node, in pixels from the top left corner.

    Attributes:
        text: Its label, truncated to fit.
        x: Its left edge.
        y: Its upper edge.
        width: Its width, which fits the text.
    """

    text: str
    x: float
    y: float
    width: float


@dataclass(frozen=True, slots=True)
class Drawing:
    """A graph with a position for each node.

    Attributes:
        boxes: The boxes by node id.
        width: The total width with margins. It may be negative if there are no nodes.
        height: The total height, likewise.
    """

    boxes: Mapping[str, Box]
    width: float
    height: float

    def edges(self, nodes: Sequence[Node]) -> Iterator[str]:
        """Yield the lines from dependencies, as SVG elements."""
        for node in nodes:
            for need in node.needs:
                start, end = self.boxes[need], self.boxes[node.id]
                x, y, to_x, to_y = start.x + start.width, start.y + BOX / 2, end.x, end.y + BOX / 2
                bend = max((to_x - x) / 2, 20)
                yield (
                    f'<path d="M{x:.0f} {y:.0f}C{x + bend:.0f} {y:.0f} {to_x - bend:.0f} {to_y:.0f} '
                    f'{to_x:.0f} {to_y:.0f}"/>'
                )


def draw(
    nodes: Sequence[Node], rows: Mapping[str, float], *, longest: int, gap: int, margin: int, header: int = 0
) -> Drawing:
    """Return the positions of nodes. Layers are columns, each as wide as its longest label.

    Args:
        nodes: The nodes, earlier layers first.
        rows: The row of each node, by id.
        longest: Maximum number of characters in a label.
        gap: Pixels between two columns.
        margin: Pixels around the drawing.
        header: Pixels reserved at the top.
    """
    texts = {node.id: _cut(printable_line(node.label), longest) for node in nodes}
    widths: dict[int, float] = {}
    for node in nodes:
        widths[node.layer] = max(widths.get(node.layer, 0.0), _width(texts[node.id]))
    left: dict[int, float] = {}
    x = float(margin)
    for layer in sorted(widths):
        left[layer] = x
        x += widths[layer] + gap
    boxes = {
        node.id: Box(texts[node.id], left[node.layer], header + margin + rows[node.id] * _ROW, _width(texts[node.id]))
        for node in nodes
    }
    bottom = max((box.y for box in boxes.values()), default=float(header))
    return Drawing(boxes, x - gap + margin, bottom + BOX + margin)


def _width(text: str) -> float:
    return len(text) * CHARACTER + 16


def _cut(text: str, longest: int) -> str:
    """Return a truncated name that keeps its end, which is more informative than its middle."""
    if len(text) <= longest:
        return text
    half = (longest - 1) // 2
    return f"{text[:half]}…{text[-half:]}"
