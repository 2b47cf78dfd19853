"""Chooses the slices to create and to release. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from iris.autoscale.closures import Closure
from iris.autoscale.demand import Demand
from iris.autoscale.lives import Lives
from iris.autoscale.model import SliceRecord
from iris.autoscale.rules import AutoscaleRules
from iris.domain.ids import JobId
from iris.domain.scale_groups import ScaleGroup


@dataclass(frozen=True, slots=True)
class SliceUse:
    """What the controller knows of a slice's hosts.

    Args:
        joined: The number of connected hosts.
        busy: The number of hosts with assigned, building, running or stopping attempts.
        closed: The number of connected hosts without attempts that get none: cordoned, in trouble or late.
        is_needed: Whether a waiting gang or reservation counts on it, or an operator has cordoned a host.
        lost: Numbers of hosts that were lost after they had joined.
        broken: Why the provider says that it will not come back; empty if it may.
    """

    joined: int = 0
    busy: int = 0
    closed: int = 0
    is_needed: bool = False
    lost: tuple[int, ...] = ()
    broken: str = ""


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
    raise NotImplementedError
