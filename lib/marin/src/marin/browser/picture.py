"""The graph of a run as an SVG for its page. Nodes are links; states are classes, which a script can change."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from marin.recorded.deciding.dag import FOLDED, STATUSES, Node, graph_of, like_name, name_prefix, worst
from marin.recorded.deciding.drawing import BOX, Box, draw
from marin.recorded.deciding.run_steps import RunStep
from rigging.text.printable import printable_line
from rigging.text.tables import duration
from rigging.web.layout import place_nodes

#: How steps are put together to nodes: the word in the page's address, and what it says.
GROUPINGS: Final = {
    "like": "names without numbers",
    "folder": "name prefix",
    "none": "no grouping",
}
_GAP: Final = 70
_MARGIN: Final = 10
_LONGEST: Final = 40
_LEAST_FOLDER: Final = 2


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture.

    Attributes:
        svg: The SVG text, which is safe to embed in a page.
        nodes: The number of nodes.
    """

    svg: str
    nodes: int


@functools.lru_cache(maxsize=32)
def _placed(steps: tuple[tuple[str, str, tuple[str, ...]], ...], grouping: str) -> tuple[list[Node], dict[str, float]]:
    """Return nodes and their rows, cached as long as only states change."""
    plain = [RunStep(name, path, needs) for path, name, needs in steps]
    fold = {"none": 0, "folder": _LEAST_FOLDER}.get(grouping, FOLDED)
    nodes = graph_of(plain, fold, name_prefix if grouping == "folder" else like_name)
    places = place_nodes({node.id: node.layer for node in nodes}, {node.id: node.needs for node in nodes})
    return nodes, {node: place.row for node, place in places.items()}


def picture_of(
    steps: Sequence[RunStep], grouping: str, link: Callable[[Node], str], panel: Callable[[Node], str | None]
) -> Picture:
    """Return the picture of a run's graph.

    Args:
        steps: The steps.
        grouping: A key of `GROUPINGS`.
        link: Returns the link of a node.
        panel: Returns the address of a node's side panel; None if it has none.
    """
    nodes, rows = _placed(tuple((step.path, step.name, step.dependencies) for step in steps), grouping)
    numbers = {step.path: number for number, step in enumerate(steps)}
    drawing = draw(nodes, rows, longest=_LONGEST, gap=_GAP, margin=_MARGIN)
    width, height = max(drawing.width, 2 * _MARGIN), drawing.height
    lines = [
        f'<svg id="graph" xmlns="http://www.w3.org/2000/svg" '
        f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">',
        '<g class="edges">',
    ]
    lines += drawing.edges(nodes)
    lines.append("</g>")
    for node in nodes:
        members = [steps[numbers[path]] for path in node.paths]
        lines.append(_box(node, members, numbers, (link(node), panel(node)), drawing.boxes[node.id]))
    return Picture("\n".join([*lines, "</svg>"]), len(nodes))


def _box(
    node: Node, members: Sequence[RunStep], numbers: Mapping[str, int], links: tuple[str, str | None], box: Box
) -> str:
    address, panel = links
    opens = f' data-panel="{escape(panel)}"' if panel else ""
    status = worst_status(members)
    is_family = len(members) > 1
    places = " ".join(str(numbers[step.path]) for step in members)
    seconds = [step.seconds for step in members if step.seconds is not None]
    told = f"{printable_line(node.label)}\n{states_text(members)}\n{duration(sum(seconds) if seconds else None)}"
    return (
        f'<a href="{escape(address)}" class="node n-{escape(status)}{" family" if is_family else ""}" '
        f'data-steps="{places}"{opens}><title>{escape(told)}</title>'
        f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="{BOX}" rx="6"/>'
        f'<text x="{box.x + 8:.0f}" y="{box.y + 14:.0f}">{escape(box.text)}</text></a>'
    )


def worst_status(steps: Sequence[RunStep]) -> str:
    """Return the most urgent status, as a class: `none` for none."""
    found = worst(step.status or "-" for step in steps)
    return found if found in STATUSES and found != "-" else "none"


def states_text(steps: Sequence[RunStep]) -> str:
    """Return the number of steps per status: `3 succeeded, 1 failed`; for a single step its status."""
    statuses = [step.status or "-" for step in steps]
    if len(statuses) == 1:
        return statuses[0]
    return ", ".join(f"{statuses.count(status)} {status}" for status in sorted(set(statuses)))
