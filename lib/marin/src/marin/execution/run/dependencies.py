"""The waits between outputs. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Node:
    waiting_for: set[str] = field(default_factory=set)
    dependants: list[str] = field(default_factory=list)


class Dependencies:
    """The outputs still to be made or checked, without ended ones."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._nodes

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, path: str) -> None:
        """Add an output that has not ended."""
        self._nodes[path] = _Node()

    def wait(self, path: str, dependencies: Iterable[str]) -> bool:
        """Record the dependencies of an output, and return whether any has not ended. Unknown outputs count as
        ended."""
        waiting = self._nodes[path].waiting_for
        for dependency in dependencies:
            node = self._nodes.get(dependency)
            if node is not None and dependency not in waiting:
                waiting.add(dependency)
                node.dependants.append(path)
        return bool(waiting)

    def dependants(self, path: str) -> list[str]:
        """Return the outputs that wait for this one, in the recorded order."""
        return self._nodes[path].dependants

    def end(self, path: str) -> list[str]:
        """Forget an ended output, and return the outputs that became ready."""
        free = []
        for dependant in self._nodes.pop(path).dependants:
            waiting = self._nodes[dependant].waiting_for
            waiting.discard(path)
            if not waiting:
                free.append(dependant)
        return free
