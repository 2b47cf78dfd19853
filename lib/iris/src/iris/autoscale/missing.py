"""Decides when people are told that capacity is missing. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from iris.autoscale.plan import GroupStatus


@dataclass(frozen=True, slots=True)
class Missing:
    """Slices of a group that pending jobs need, and that were not made.

    Args:
        group: The scale group.
        slices: How many are missing now.
        since_ms: Since when some are missing (Unix ms).
        outcome: The last answer that closed the group meanwhile; empty for none, e.g. at its maximum of slices.
        is_told: Whether people were told.
    """

    group: str
    slices: int
    since_ms: int
    outcome: str = ""
    is_told: bool = False


def missing_capacity(
    before: Mapping[str, Missing], groups: Mapping[str, GroupStatus], joined_ms: Mapping[str, int], now_ms: int
) -> Mapping[str, Missing]:
    """Return the groups that lack slices now. Time begins again when a slice of the group has joined.

    Args:
        before: The last result.
        groups: The status of each group.
        joined_ms: When the newest slice of each group had joined (Unix ms).
        now_ms: Unix ms.
    """
    found = {}
    for name, status in groups.items():
        if not status.demand:
            continue
        known = before.get(name)
        if known is None or joined_ms.get(name, 0) > known.since_ms:
            known = Missing(name, 0, now_ms)
        found[name] = replace(known, slices=status.demand, outcome=status.outcome or known.outcome)
    return found


def to_tell(missing: Mapping[str, Missing], after_s: float, now_ms: int) -> list[Missing]:
    """Return the groups that a provider has refused for `after_s`, and of which nobody was told."""
    return [
        item
        for item in missing.values()
        if item.outcome and not item.is_told and now_ms - item.since_ms >= after_s * 1000
    ]
