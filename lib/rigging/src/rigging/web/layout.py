"""The layout of a layered graph: columns from left to right, few crossings, no overlapping nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_SWEEPS: Final = 6


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a node.

    Attributes:
        column: Its layer.
        row: Its row, from 0. Two nodes of one column are at least 1 apart.
    """

    column: int
    row: float


def layers_of(needs: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the layer of each node: the length of the longest path to it.

    Args:
        needs: The nodes that each node depends on. Nodes that are not keys are ignored. Nodes in a cycle, which only a
            damaged file can contain, come last.
    """
    left = {node: len({need for need in wanted if need in needs}) for node, wanted in needs.items()}
    users: dict[str, list[str]] = {node: [] for node in needs}
    for node, wanted in needs.items():
        for need in dict.fromkeys(wanted):
            if need in needs:
                users[need].append(node)
    layers: dict[str, int] = {}
    ready = [node for node, count in left.items() if not count]
    while ready:
        following: list[str] = []
        for node in ready:
            layers[node] = 1 + max((layers[need] for need in needs[node] if need in needs), default=-1)
            for user in users[node]:
                left[user] -= 1
                if not left[user]:
                    following.append(user)
        ready = following
    last = 1 + max(layers.values(), default=-1)
    return {node: layers.get(node, last) for node in needs}


def place_nodes(layers: Mapping[str, int], needs: Mapping[str, Sequence[str]]) -> dict[str, Place]:
    """Return the position of each node.

    Each column is ordered by the mean row of its nodes' neighbours, in several passes in both directions. Then each
    node moves towards its neighbours as far as the order allows. The cost is linear in nodes and edges.

    Args:
        layers: The layer of each node.
        needs: The nodes that each node depends on, all in earlier layers.
    """
    columns: dict[int, list[str]] = {}
    for node, layer in layers.items():
        columns.setdefault(layer, []).append(node)
    before: dict[str, list[str]] = {node: [need for need in needs.get(node, ()) if need in layers] for node in layers}
    after: dict[str, list[str]] = {node: [] for node in layers}
    for node, wanted in before.items():
        for need in wanted:
            after[need].append(node)
    rows = {node: float(number) for members in columns.values() for number, node in enumerate(members)}
    order = sorted(columns)
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        neighbours = before if forward else after
        for layer in order if forward else reversed(order):
            _sort(columns[layer], neighbours, rows)
    for layer in [*order, *reversed(order)]:
        _move(columns[layer], before, after, rows)
    top = min(rows.values(), default=0.0)
    return {node: Place(layers[node], rows[node] - top) for node in layers}


def _sort(members: list[str], neighbours: Mapping[str, Sequence[str]], rows: dict[str, float]) -> None:
    wanted = {node: _mean(neighbours[node], rows, rows[node]) for node in members}
    members.sort(key=lambda node: (wanted[node], rows[node]))
    # Around the middle of what they belong to, not from the top: long columns stay beside short ones.
    middle = sum(wanted.values()) / len(members)
    start = middle - (len(members) - 1) / 2
    for number, node in enumerate(members):
        rows[node] = start + number


def _move(
    members: Sequence[str],
    before: Mapping[str, Sequence[str]],
    after: Mapping[str, Sequence[str]],
    rows: dict[str, float],
) -> None:
    """Move the nodes of a column, in order, towards their neighbours' rows."""
    lowest = float("-inf")
    for node in members:
        wanted = _mean([*before[node], *after[node]], rows, rows[node])
        rows[node] = max(lowest + 1, min(wanted, rows[node] + 1))
        lowest = rows[node]


def _mean(nodes: Sequence[str], rows: Mapping[str, float], otherwise: float) -> float:
    return sum(rows[node] for node in nodes) / len(nodes) if nodes else otherwise
