"""Chooses the slices to create and to release. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from iris.autoscale.closures import Closure
from iris.autoscale.lives import Lives
from iris.autoscale.model import SliceRecord, SliceUse
from iris.autoscale.planning.demand import Demand
from iris.autoscale.planning.releases import failed_slices, idle_slices
from iris.autoscale.planning.room import Room
from iris.autoscale.planning.routes import Route, routes, why_none
from iris.autoscale.planning.supply import GroupState, Supply, closure_text
from iris.autoscale.rules import AutoscaleRules
from iris.domain.ids import JobId
from iris.domain.scale_groups import ScaleGroup

__all__ = ["GroupStatus", "Plan", "SliceUse", "plan"]

_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A scale group, for people.

    Args:
        demand: Slices that pending jobs need, beyond those that exist.
        ready, booting, failed: Numbers of slices.
        outcome: The last answer that closes the group, in words; empty while it is open.
        next_try_ms: When it is tried again (Unix ms); 0 for not before the cluster file changes, or while it is open.
        trouble: A problem beyond its slices, e.g. hosts that are out of reach.
    """

    demand: int = 0
    ready: int = 0
    booting: int = 0
    failed: int = 0
    outcome: str = ""
    next_try_ms: int = 0
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """The result of a look.

    Args:
        create: The names of groups, one for each slice to create, in order.
        release: Slices to delete, with the reason.
        reasons: Why jobs wait for capacity, and what is done about it.
        lacking: The first scale group that lacks slices for a job.
        groups: The status of each group.
    """

    create: tuple[str, ...] = ()
    release: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[JobId, str] = field(default_factory=dict)
    lacking: Mapping[JobId, str] = field(default_factory=dict)
    groups: Mapping[str, GroupStatus] = field(default_factory=dict)


def plan(
    now_ms: int,
    demands: Sequence[Demand],
    groups: Sequence[ScaleGroup],
    slices: Mapping[str, SliceRecord],
    use: Mapping[str, SliceUse],
    closures: Mapping[str, Closure],
    lives: Lives,
    rules: AutoscaleRules,
    recent_creates: Sequence[int],
) -> Plan:
    """Choose the slices to create and to release.

    Args:
        now_ms: Unix ms.
        demands: What waits for capacity, in the scheduler's order.
        groups: The scale groups of the cluster file.
        slices: All slices that are not over, and those that failed lately, by name, in the order in which they were
            wanted: planned slices must be stored in the plan's order.
        use: What the controller knows of each slice; nothing of those that are missing.
        closures: By key.
        lives: The slices that were lost lately.
        rules: Settings.
        recent_creates: When slices were wanted in the last hour (Unix ms), oldest first.
    """
    by_name = {group.name: group for group in groups}
    release = failed_slices(now_ms, by_name, slices, use, closures, rules)
    supply = Supply(now_ms, groups, slices, use, release, closures, lives, rules, recent_creates)
    reasons: dict[JobId, str] = {}
    lacking: dict[JobId, str] = {}
    for demand in demands:
        text, group_name = _serve(demand, supply)
        for job_id in demand.jobs if text else ():
            reasons.setdefault(job_id, text)
            if group_name:
                lacking.setdefault(job_id, group_name)
    for state in supply.states.values():
        supply.add(state, min(max(0, state.group.min_slices + state.asked - state.kept), supply.may_create(state)))
        if state.group.buffer_slices:
            rooms = supply.rooms.of_group.get(state.group.name, ())
            unused = sum(room.is_whole and not room.is_taken and not room.is_for_gangs for room in rooms)
            supply.add(state, min(max(0, state.group.buffer_slices - unused), supply.may_create(state)))
    release.update(idle_slices(now_ms, slices, use, supply, rules))
    states = {name: _status(state) for name, state in supply.states.items()}
    return Plan(tuple(supply.create), release, reasons, lacking, states)


def _serve(demand: Demand, supply: Supply) -> tuple[str, str]:
    """Give room to a demand, existing room first. Return why its jobs wait, empty if they have room, and the first
    group that lacks slices.
    """
    ways = routes(demand, supply.shapes)
    if not ways:
        return why_none(demand, supply.states.values()), ""
    serve = _serve_gangs if demand.gang_size else _serve_tasks
    rooms, left, at_once = serve(demand, ways, supply)
    if left:
        supply.note_shortage((way.state for way in ways), at_once)
    return _reason(rooms, ways if left else (), at_once, supply), ways[0].state.group.name if left else ""


def _serve_tasks(demand: Demand, ways: Sequence[Route], supply: Supply) -> tuple[list[Room], int, int]:
    """Return the rooms that a demand takes, how many slices it lacks, and how many of them it needs at once."""
    on_empty = {way.state.group.name: way.on_host for way in ways}
    taken, found = supply.rooms.take_tasks(on_empty, demand.need, demand.tasks)
    tasks = demand.tasks - taken
    for way in ways if tasks else ():
        added = supply.add(way.state, min(-(-tasks // way.on_slice), supply.may_create(way.state)))
        way.state.missing += len(added)
        for room in added:
            tasks -= room.take_tasks(demand.need, tasks, way.on_host)
        supply.rooms.trim(added)
        found += added
    left = -(-tasks // ways[0].on_slice)
    ways[0].state.missing += left
    return found, left, 1


def _serve_gangs(demand: Demand, ways: Sequence[Route], supply: Supply) -> tuple[list[Room], int, int]:
    """Like `_serve_tasks`. A gang takes all its slices or none; those that may not be created yet come later."""
    each = demand.gang_slices
    wanted = demand.tasks // demand.gang_size
    whole = supply.rooms.whole([way.state.group.name for way in ways])
    able = (len(whole) + supply.could_create_in([way.state for way in ways])) // each * each
    found = whole[: min(wanted, able)]
    missing = min(wanted, able) - len(found)
    for way in ways:
        added = supply.add(way.state, min(missing, supply.may_create(way.state)))
        way.state.missing += len(added)
        missing -= len(added)
        found += added
    for room in found:
        room.take_whole()
    supply.rooms.trim(found)
    left = missing + max(0, wanted - able)
    ways[0].state.missing += left
    if wanted > able and len(whole) - len(found) + sum(way.state.left for way in ways) >= each:
        for room in whole[able : able + each]:
            room.is_awaited = True  # what a gang has waits for what it lacks, unless others use it
    return found, left, each if wanted > able else 1


def _reason(rooms: Sequence[Room], lacking: Sequence[Route], at_once: int, supply: Supply) -> str:
    boots = [room.name for room in rooms if room.name and room.state is not None and room.state.is_booting]
    parts = []
    if boots:
        parts.append(f"{_some('slice', boots)} {'boot' if len(boots) > 1 else 'boots'}")
    for name, count in Counter(room.group.name for room in rooms if not room.name).items():
        parts.append(f"{count} {'slices' if count > 1 else 'slice'} of {name} {'are' if count > 1 else 'is'} created")
    if lacking:
        parts += dict.fromkeys(supply.why_not(way.state, at_once) for way in lacking[:_MOST_NAMED])
        if len(lacking) > _MOST_NAMED:
            parts.append(f"so it is with {len(lacking) - _MOST_NAMED} other scale groups")
    return "; ".join(parts)


def _some(noun: str, names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    rest = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{noun}{'s' if len(names) > 1 else ''} {shown}{rest}"


def _status(state: GroupState) -> GroupStatus:
    closure = state.closure if state.is_closed else None
    outcome, next_try_ms = (closure_text(closure), closure.until_ms) if closure is not None else ("", 0)
    return GroupStatus(state.missing, state.ready, state.booting, state.failed, outcome, next_try_ms)
