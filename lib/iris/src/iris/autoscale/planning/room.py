"""Room on slices that exist, boot or are planned, while demands take it one after the other. Pure.

Demands fill slices in the order in which these were wanted: a plan that is made again, with its slices on their way,
puts each demand where it was.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from iris.autoscale.model import SliceState
from iris.domain.resources import Resources
from iris.domain.scale_groups import ScaleGroup, tasks_on


class Room:
    """One slice.

    Attributes:
        name: The slice's name; empty for a planned one.
        order: Slices wanted later have a higher number.
        state: Its state; None for a planned one.
        parts: What is left of its hosts, with the number of equal hosts.
        is_whole: Whether a gang may have it: none of its hosts is used.
        is_for_gangs: Whether it is kept, so that single tasks get none of it.
        is_taken: Whether a demand counts on it. is_awaited: Whether a gang would, if it had the rest of its slices.
    """

    __slots__ = ("group", "is_awaited", "is_for_gangs", "is_taken", "is_whole", "name", "order", "parts", "state")

    def __init__(self, group: ScaleGroup, name: str, order: int, state: SliceState | None, hosts: int) -> None:
        self.group, self.name, self.order, self.state = group, name, order, state
        self.parts: list[tuple[Resources, int]] = [(group.host, hosts)]
        self.is_whole = True
        self.is_awaited = self.is_for_gangs = self.is_taken = False

    def take_tasks(self, need: Resources, tasks: int, on_empty: int) -> int:
        """Take room for single tasks, and return for how many.

        Args:
            need: The resources of a task.
            tasks: The number of tasks.
            on_empty: How many fit on an empty host.
        """
        taken, parts = 0, list[tuple[Resources, int]]()
        for left, hosts in self.parts:
            each = on_empty if left is self.group.host else tasks_on(left, need)
            full = min(hosts, (tasks - taken) // each) if each else 0
            if full:
                parts.append((left.sub(need.times(each)), full))
                taken += full * each
            rest = min(each, tasks - taken) if full < hosts else 0
            if rest:
                parts.append((left.sub(need.times(rest)), 1))
                taken += rest
            if hosts - full - bool(rest):
                parts.append((left, hosts - full - bool(rest)))
        if taken:
            self.parts, self.is_whole, self.is_taken = parts, False, True
        return taken

    def take_whole(self) -> None:
        """Give the slice to a gang, which shares its hosts with no other."""
        self.parts, self.is_whole, self.is_taken = [], False, True


class Rooms:
    """The slices with room, by group."""

    def __init__(self) -> None:
        self.of_group: dict[str, list[Room]] = {}
        self._count = 0

    def add(self, group: ScaleGroup, name: str, state: SliceState | None, hosts: int) -> Room:
        """Add the slice that was wanted last, with the number of its free or missing hosts, at least 1."""
        self._count += 1
        room = Room(group, name, self._count, state, hosts)
        self.of_group.setdefault(group.name, []).append(room)
        return room

    def take_tasks(self, on_empty: Mapping[str, int], need: Resources, tasks: int) -> tuple[int, list[Room]]:
        """Take room for single tasks in these groups: as much as there is. Return for how many, and the slices.

        Args:
            on_empty: How many tasks fit on an empty host of each group.
            need: The resources of a task.
            tasks: The number of tasks.
        """
        taken, found = 0, list[Room]()
        for room in self._in_order(on_empty):
            if taken == tasks:
                break
            for left, _ in room.parts:
                if left.cpu_millis >= need.cpu_millis and left.memory_bytes >= need.memory_bytes:
                    break
            else:
                continue  # most slices that are used have too little for most demands
            count = 0 if room.is_for_gangs else room.take_tasks(need, tasks - taken, on_empty[room.group.name])
            if count:
                found.append(room)
                taken += count
        self.trim(found)
        return taken, found

    def whole(self, groups: Iterable[str]) -> list[Room]:
        """Return the slices of these groups that gangs may have, in order."""
        return [room for room in self._in_order(groups) if room.is_whole]

    def _in_order(self, groups: Iterable[str]) -> list[Room]:
        lists = [self.of_group[name] for name in groups if name in self.of_group]
        return lists[0] if len(lists) == 1 else sorted(chain(*lists), key=_order)

    def left(self) -> Iterator[Room]:
        """Yield the slices that are not full."""
        for rooms in self.of_group.values():
            yield from rooms

    def trim(self, rooms: Iterable[Room]) -> None:
        """Forget those of these slices that are full."""
        for name in {room.group.name for room in rooms if not room.parts}:
            self.of_group[name] = [room for room in self.of_group[name] if room.parts]


def _order(room: Room) -> int:
    return room.order
