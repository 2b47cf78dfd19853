"""The graph of a run's steps: layers, families of similar steps folded into one node, and a tree for a terminal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from marin.recorded.deciding.run_steps import RunStep
from rigging.text.tables import duration
from rigging.web.layout import layers_of

_DIGITS: Final = re.compile(r"\d+")
#: Like steps are folded when there are so many of them.
FOLDED: Final = 6


@dataclass(frozen=True, slots=True)
class Node:
    """A step, or a family of similar steps.

    Attributes:
        id: The output path of the step, or of the family's first one.
        label: The step's name. For a family: the name with `*` for numbers, and the number of steps.
        layer: The length of the longest path from a step without dependencies.
        status: The status, or the worst one of the family.
        statuses: The number of its steps per status.
        paths: The output paths of its steps.
        needs: Ids of its dependencies, all in earlier layers.
        seconds: The total duration of its functions; None if not recorded.
    """

    id: str
    label: str
    layer: int
    status: str
    statuses: Mapping[str, int]
    paths: tuple[str, ...]
    needs: tuple[str, ...]
    seconds: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the node as an entry of `marin graph --json`."""
        return {
            "id": self.id,
            "label": self.label,
            "layer": self.layer,
            "status": self.status,
            "statuses": dict(self.statuses),
            "paths": list(self.paths),
            "needs": list(self.needs),
            "seconds": self.seconds,
        }


#: How steps stand, the worst first; `-` is one of which nothing is known.
STATUSES: Final = (
    "failed",
    "lost",
    "died",
    "dep_failed",
    "stopped",
    "retrying",
    "running",
    "queued",
    "-",
    "succeeded",
    "cached",
)


def like_name(name: str) -> str:
    """Return a step's name with `*` for numbers, which is equal for similar steps."""
    return _DIGITS.sub("*", name)


def name_prefix(name: str) -> str:
    """Return a step's name up to its last slash, followed by `*`; a name without a slash like `like_name`."""
    folder, slash, _ = name.rpartition("/")
    return f"{like_name(folder)}/*" if slash else like_name(name)


def graph_of(steps: Sequence[RunStep], fold: int = FOLDED, family: Callable[[str], str] = like_name) -> list[Node]:
    """Return the nodes of a run's graph, earlier layers first.

    Steps of one layer form a family if `family` maps their names to the same text: by default if they differ only in
    numbers.

    Args:
        steps: The steps.
        fold: Fold families of this size or larger into one node; 0 gives every step a node.
        family: Returns the family of a name.
    """
    by_path = {step.path: step for step in steps}
    layers = layers_of({path: step.dependencies for path, step in by_path.items()})
    families: dict[tuple[int, str], list[RunStep]] = {}
    for path, step in by_path.items():
        families.setdefault((layers[path], family(step.name)), []).append(step)
    groups: list[list[RunStep]] = []
    for members in families.values():
        groups += [members] if fold and len(members) >= fold else [[step] for step in members]
    node_of = {step.path: members[0].path for members in groups for step in members}
    nodes = [_node(members, layers, node_of, family) for members in groups]
    return sorted(nodes, key=lambda node: node.layer)


def _node(
    members: Sequence[RunStep], layers: Mapping[str, int], node_of: Mapping[str, str], family: Callable[[str], str]
) -> Node:
    first = members[0]
    layer = layers[first.path]
    statuses = Counter(step.status or "-" for step in members)
    needs = dict.fromkeys(
        node_of[need] for step in members for need in step.dependencies if layers.get(need, layer) < layer
    )
    times = [step.seconds for step in members if step.seconds is not None]
    is_family = len(members) > 1
    return Node(
        id=first.path,
        label=f"{family(first.name)} ({len(members)} steps)" if is_family else first.name,
        layer=layer,
        status=worst(statuses),
        statuses=statuses,
        paths=tuple(step.path for step in members),
        needs=tuple(needs),
        seconds=sum(times) if times else None,
    )


def worst(statuses: Iterable[str]) -> str:
    """Return the most urgent status."""
    order = {status: number for number, status in enumerate(STATUSES)}
    return min(statuses, key=lambda status: order.get(status, order["-"]), default="-")


def tree_lines(nodes: Sequence[Node]) -> list[tuple[str, str]]:
    """Return the lines of a tree with the status of each: final steps first, and dependencies below each.

    Each node's dependencies are listed once. Later occurrences are marked.
    """
    by_id = {node.id: node for node in nodes}
    used = {need for node in nodes for need in node.needs}
    listed: set[str] = set()
    lines: list[tuple[str, str]] = []
    # (id, the lines drawn to the left, the branch to the node itself)
    pending = [(node.id, "", "") for node in reversed(nodes) if node.id not in used]
    while pending:
        place, left, branch = pending.pop()
        node = by_id[place]
        again = place in listed and bool(node.needs)
        lines.append((left + branch + _line(node) + ("  (see above)" if again else ""), node.status))
        if place in listed:
            continue
        listed.add(place)
        further = left + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
        for number, need in enumerate(reversed(node.needs)):
            pending.append((need, further, "└─ " if number == 0 else "├─ "))
    return lines


def _line(node: Node) -> str:
    if len(node.paths) > 1:
        statuses = ", ".join(f"{count} {status}" for status, count in sorted(node.statuses.items()))
    else:
        statuses = node.status
    return f"{node.label}  {statuses}" + (f"  {duration(node.seconds)}" if node.seconds else "")
