"""Chooses the slices to create and to release. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from iris.domain.ids import JobId


@dataclass(frozen=True, slots=True)
class SliceUse:
    """What the controller knows of a slice's hosts.

    Args:
        joined: The number of connected hosts.
        busy: The number of hosts with assigned, building, running or stopping attempts.
        is_needed: Whether a waiting gang or reservation counts on it.
        lost: Numbers of hosts that were lost after they had joined.
    """

    joined: int = 0
    busy: int = 0
    is_needed: bool = False
    lost: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A scale group, for people.

    Args:
        demand: Slices that pending jobs need, beyond those that exist.
        ready, booting, failed: Numbers of slices.
        outcome: The last answer that closes the group, in words; empty while it is open.
        next_try_ms: When it is tried again (Unix ms); 0 for not before the cluster file changes, or while it is open.
    """

    demand: int = 0
    ready: int = 0
    booting: int = 0
    failed: int = 0
    outcome: str = ""
    next_try_ms: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The result of a look.

    Args:
        create: The names of groups, one for each slice to create, in order.
        release: Slices to delete, with the reason.
        reasons: Why jobs wait for capacity, and what is done about it.
        groups: The status of each group.
    """

    create: tuple[str, ...] = ()
    release: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[JobId, str] = field(default_factory=dict)
    groups: Mapping[str, GroupStatus] = field(default_factory=dict)
