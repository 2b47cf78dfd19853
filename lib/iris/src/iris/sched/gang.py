"""Place the tasks of a gang together, or none of them."""

from iris.core.view import Demand
from iris.domain.ids import WorkerId
from iris.sched.fit import Host, may_run_on


def place_gang(
    count: int, group_by: str, demand: Demand, hosts: list[Host], within: str | None
) -> list[WorkerId] | str:
    """Find room for all `count` tasks on workers that share one value of an attribute.

    Args:
        group_by: The attribute.
        hosts: Free capacity of this round; used up by a placement, untouched by a miss.
        within: The value that members which already run have; None: any value will do.

    Returns:
        One worker for each task, or why there is no room: "needs 4 workers' worth ...; the best group has 3".
    """
    groups: dict[str, list[Host]] = {}
    for host in hosts:
        value = host.worker.attributes.get(group_by)
        if value is not None and within in (None, value):
            groups.setdefault(value, []).append(host)
    if not groups:
        where = f" {group_by}={within}" if within is not None else f" the attribute {group_by!r}"
        return f"no connected worker has{where}, by which the gang of {count} is grouped"
    rooms = {value: _rooms(count, demand, members) for value, members in groups.items()}
    sizes = {value: sum(room for _, room in found) for value, found in rooms.items()}
    enough = [value for value, size in sizes.items() if size >= count]
    if not enough:
        best = max(sizes, key=lambda value: (sizes[value], value))
        return f"needs room for {count} tasks in one {group_by}; the best, {best}, has room for {sizes[best]}"
    # The group that is left with least: larger ones stay whole for larger gangs.
    chosen = min(enough, key=lambda value: (sizes[value], value))
    return _take(count, demand, rooms[chosen])


def _rooms(count: int, demand: Demand, hosts: list[Host]) -> list[tuple[Host, int]]:
    fitting = [host for host in hosts if may_run_on(demand, host.worker)]
    return [(host, host.room_for(demand.resources, count)) for host in fitting]


def _take(count: int, demand: Demand, rooms: list[tuple[Host, int]]) -> list[WorkerId]:
    placed: list[WorkerId] = []
    for host, room in rooms:
        for _ in range(min(room, count - len(placed))):
            host.take(demand.resources)
            placed.append(host.worker.worker_id)
    return placed
