"""Chooses the slices to release. Pure."""

from collections.abc import Iterator, Mapping
from typing import Final

from iris.autoscale.closures import Closure, closure_of
from iris.autoscale.model import Outcome, SliceRecord, SliceState, SliceUse
from iris.autoscale.planning.supply import Supply, closure_text
from iris.autoscale.rules import AutoscaleRules
from iris.domain.scale_groups import CapacityType, ScaleGroup

_UNUSED: Final = SliceUse()
_SHORT_OF_QUOTA_S: Final = 60.0
"""Slices that are unused for this long make room for others of their quota pool."""


def failed_slices(
    now_ms: int,
    groups: Mapping[str, ScaleGroup],
    slices: Mapping[str, SliceRecord],
    use: Mapping[str, SliceUse],
    closures: Mapping[str, Closure],
    rules: AutoscaleRules,
) -> dict[str, str]:
    """Return the slices that serve no more or never will, with the reason."""
    found = {}
    for name, record in slices.items():
        if record.state >= SliceState.LEAVING:
            continue
        group, used = groups.get(record.group), use.get(name, _UNUSED)
        if group is None:
            if not (used.busy or used.is_needed or record.asked_by):
                found[name] = f"scale group {record.group} is no longer in the cluster file"
        elif used.broken:
            found[name] = used.broken
        elif used.lost:
            many = "hosts" if len(used.lost) > 1 else "host"
            numbers = ", ".join(map(str, used.lost))
            found[name] = f"{many} {numbers} of {group.hosts_per_slice} lost"
        elif record.state.is_booting and (text := _why_never(now_ms, group, record, closures, rules)):
            found[name] = text
    return found


def _why_never(
    now_ms: int, group: ScaleGroup, record: SliceRecord, closures: Mapping[str, Closure], rules: AutoscaleRules
) -> str:
    begun_ms = record.created_ms
    if group.capacity_type is CapacityType.RESERVED:
        begun_ms = record.ready_ms or now_ms  # until then it may queue
    if now_ms - begun_ms > rules.boot_deadline_s * 1000:
        return f"has not joined in {rules.boot_deadline_s:g} s (boot deadline)"
    if record.state is SliceState.WANTED and closures:
        closure = closure_of(closures, group, now_ms)
        if closure is not None and closure.is_closed(now_ms) and closure.outcome is not Outcome.RATE:
            return f"was not requested yet, and its group is closed ({closure_text(closure)})"
    return ""


def idle_slices(
    now_ms: int, slices: Mapping[str, SliceRecord], use: Mapping[str, SliceUse], supply: Supply, rules: AutoscaleRules
) -> Iterator[tuple[str, str]]:
    """Yield unused slices beyond demand, minimum and buffer, with the reason: all at once, the longest unused first."""
    idle: dict[str, list[tuple[int, int, str]]] = {}
    for room in supply.rooms.left():
        if room.state is not SliceState.JOINED or room.is_taken or room.is_awaited or room.is_for_gangs:
            continue
        used = use.get(room.name, _UNUSED)
        if not used.busy and used.joined >= room.group.hosts_per_slice:
            record = slices[room.name]
            used_ms = max(record.used_ms, record.joined_ms)
            idle.setdefault(room.group.name, []).append((used_ms, room.order, room.name))
    short = supply.pools_short()
    for group_name, entries in idle.items():
        state = supply.states[group_name]
        group = state.group
        patience_s = rules.idle_s
        if supply.is_crowded:
            patience_s = min(patience_s, rules.crowded_s)
        elif group.quota_pool and group.quota_pool in short:
            patience_s = min(patience_s, _SHORT_OF_QUOTA_S)
        spare = min(state.kept - state.asked - group.min_slices, len(entries) - group.buffer_slices)
        own = sorted(entry for entry in entries if not slices[entry[2]].asked_by)
        for used_ms, _, name in own[: max(0, spare)]:
            if now_ms - used_ms >= patience_s * 1000:
                yield name, f"unused for {(now_ms - used_ms) / 1000:.0f} s"
