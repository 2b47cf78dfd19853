"""Traverse a graph of steps without recursion, because chains may have thousands of steps."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from rigging.errors import InvalidRequest

Node = TypeVar("Node", bound=Hashable)


class DependencyCycle(InvalidRequest):
    """Steps depend on each other in a circle."""


def dependencies_first(
    roots: Iterable[Node],
    dependencies: Callable[[Node], Iterable[Node]],
    name: Callable[[Node], str],
    done: Callable[[Node], bool] = lambda _: False,
) -> Iterator[Node]:
    """Yield every node reachable from `roots` once, each after its dependencies.

    Args:
        roots: The nodes to start from, in order.
        dependencies: Returns the dependencies of a node; called once per node.
        name: Returns the name of a node, for the error.
        done: Nodes to skip, with nodes reachable only through them.

    Raises:
        DependencyCycle: There is a cycle. The message names its nodes in order.
    """
    finished: set[Node] = set()
    for root in roots:
        if root in finished or done(root):
            continue
        path: dict[Node, Iterator[Node]] = {root: iter(dependencies(root))}
        while path:
            node, remaining = next(reversed(path.items()))
            for dependency in remaining:
                if dependency in path:
                    raise DependencyCycle(_describe_cycle(list(path), dependency, name))
                if dependency not in finished and not done(dependency):
                    path[dependency] = iter(dependencies(dependency))
                    break
            else:
                del path[node]
                finished.add(node)
                yield node


def _describe_cycle(path: list[Node], again: Node, name: Callable[[Node], str]) -> str:
    cycle = [*path[path.index(again) :], again]
    return f"steps depend on each other in a circle: {' -> '.join(name(node) for node in cycle)}"


def reachable(roots: Iterable[Node], neighbours: Callable[[Node], Iterable[Node]]) -> set[Node]:
    """Return the roots and every node reachable from them."""
    found: set[Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(neighbours(node))
    return found
