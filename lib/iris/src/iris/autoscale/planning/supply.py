"""The slices of scale groups, and how many more they may create, during one plan. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from iris.autoscale.closures import Closure, closure_of
from iris.autoscale.lives import Lives, avoided_hosts, create_pauses, recent
from iris.autoscale.model import SLICE_ATTRIBUTE, Outcome, SliceRecord, SliceState, SliceUse
from iris.autoscale.planning.room import Room, Rooms
from iris.autoscale.rules import AutoscaleRules
from iris.domain.resources import Resources
from iris.domain.scale_groups import GROUP_ATTRIBUTE, ManualTemplate, ScaleGroup

_UNUSED = SliceUse()


class GroupState:
    """A scale group during a plan.

    Attributes:
        attributes: Those of its hosts.
        most: The maximum number of slices, without hosts that back off.
        present: The slices that the provider may have. kept: Those that do not leave. asked: Those of users among them.
        ready, booting, failed: Numbers of slices; planned ones boot.
        losses: Slices that were lost lately.
        missing: Slices that pending jobs need beyond those that exist.
        closure: What closes it, or has closed it until its next slice is made.
        pause_ms: Least time between creations; 0 unless its slices live shortly.
        last_ms: The last creation, or the last end of a slice that was lost.
    """

    __slots__ = (
        "asked", "attributes", "booting", "closure", "failed", "group", "is_closed", "kept", "last_ms", "losses",
        "missing", "most", "pause_ms", "present", "ready",
    )  # fmt: skip

    def __init__(self, group: ScaleGroup, closure: Closure | None, is_closed: bool, pause_ms: int, most: int) -> None:
        self.group, self.closure, self.is_closed, self.pause_ms, self.most = group, closure, is_closed, pause_ms, most
        named = {GROUP_ATTRIBUTE: group.name, SLICE_ATTRIBUTE: group.name}
        self.attributes: Mapping[str, str] = named | dict(group.host_attributes)
        self.present = self.kept = self.asked = self.ready = self.booting = self.failed = self.losses = 0
        self.missing = self.last_ms = 0

    @property
    def left(self) -> int:
        """Return how many slices it may have beyond those that are present."""
        return max(0, self.most - self.present)

    @property
    def is_doubtful(self) -> bool:
        """Return whether no slice was made since capacity lacked: after the pause, one at a time is tried."""
        return self.closure is not None and self.closure.outcome in (Outcome.STOCK_OUT, Outcome.QUOTA)


class Supply:
    """All groups, the room on their slices, and the slices to create.

    Args:
        now_ms, groups, slices, use, closures, lives, rules, recent_creates: See `plan`.
        leaving: Slices that the plan releases at once.

    Attributes:
        states: The groups by name. shapes: By the capacity of their hosts.
        rooms: The room on slices that do not leave.
        create: The groups of the slices to create, in order.
        is_crowded: Whether a demand waits because the maximum number of hosts is reached.
    """

    def __init__(
        self,
        now_ms: int,
        groups: Sequence[ScaleGroup],
        slices: Mapping[str, SliceRecord],
        use: Mapping[str, SliceUse],
        leaving: Mapping[str, str],
        closures: Mapping[str, Closure],
        lives: Lives,
        rules: AutoscaleRules,
        recent_creates: Sequence[int],
    ) -> None:
        self.rooms = Rooms()
        self.create: list[str] = []
        self.is_crowded = False
        self._now_ms, self._rules = now_ms, rules
        in_minute = sum(now_ms - at_ms < 60_000 for at_ms in recent_creates)
        in_hour = sum(now_ms - at_ms < 3_600_000 for at_ms in recent_creates)
        self._budget = max(0, min(rules.creates_per_minute - in_minute, rules.creates_per_hour - in_hour))
        pauses = create_pauses(lives, slices.values(), rules.short_life_s, now_ms)
        self._avoided = avoided_hosts(lives, now_ms)
        self.states: dict[str, GroupState] = {}
        for group in groups:
            closure = closure_of(closures, group, now_ms) if closures else None
            is_closed = closure is not None and closure.is_closed(now_ms)
            most = _most(group, self._avoided)
            self.states[group.name] = GroupState(group, closure, is_closed, pauses.get(group.name, 0), most)
        for life in recent(lives, now_ms):
            if life.group in self.states:
                self.states[life.group].losses += 1
                self.states[life.group].last_ms = life.ended_ms
        self.shapes: dict[Resources, list[GroupState]] = {}
        for state in self.states.values():
            self.shapes.setdefault(state.group.host, []).append(state)
        self._hosts = 0
        for name, record in slices.items():
            self._count(name, record, use.get(name, _UNUSED), name in leaving)

    def _count(self, name: str, record: SliceRecord, use: SliceUse, leaves: bool) -> None:
        state = self.states.get(record.group)
        if state is None:
            return
        if record.state >= SliceState.GONE:
            state.failed += record.state is SliceState.FAILED
            return
        group = state.group
        state.present += 1
        if record.created_ms > state.last_ms:
            state.last_ms = record.created_ms
        self._hosts += group.hosts_per_slice
        if leaves or record.state is SliceState.LEAVING:
            return
        state.kept += 1
        state.asked += bool(record.asked_by)
        is_joined = record.state is SliceState.JOINED
        state.ready += is_joined
        state.booting += not is_joined
        hosts = group.hosts_per_slice - use.busy - use.closed
        if hosts <= 0:
            return
        room = self.rooms.add(group, name, record.state, hosts)
        room.is_for_gangs = use.is_needed
        # What tasks get on a slice that boots, a gang may have beside it or not: that is seen when it has joined.
        room.is_whole = not use.closed and not (is_joined and use.busy)

    def may_create(self, state: GroupState) -> int:
        """Return how many slices of a group may be created now."""
        count = self.could_create(state)
        if count and state.is_doubtful:
            count = min(count, max(0, 1 - state.booting))
        if count and state.pause_ms:
            count = min(count, 1) if self._now_ms - state.last_ms >= state.pause_ms else 0
        return min(count, self._budget)

    def could_create(self, state: GroupState) -> int:
        """Return how many slices of a group may be created one after the other."""
        return 0 if state.is_closed else min(state.left, self._hosts_left() // state.group.hosts_per_slice)

    def could_create_in(self, states: Sequence[GroupState]) -> int:
        """Return how many slices of several groups could be created together, one after the other."""
        most = self._hosts_left() // min(state.group.hosts_per_slice for state in states)
        return min(most, sum(map(self.could_create, states)))

    def _hosts_left(self) -> int:
        return max(0, self._rules.max_hosts - self._hosts) if self._rules.max_hosts else 1 << 30

    def add(self, state: GroupState, count: int) -> list[Room]:
        """Create slices, and return their room."""
        self.create += [state.group.name] * count
        state.present += count
        state.kept += count
        state.booting += count
        if count:
            state.last_ms = self._now_ms
        self._budget -= count
        self._hosts += count * state.group.hosts_per_slice
        return [self.rooms.add(state.group, "", None, state.group.hosts_per_slice) for _ in range(count)]

    def why_not(self, state: GroupState, at_once: int) -> str:
        """Return why so many more slices of a group may not be created now."""
        closure, name, rules = state.closure, state.group.name, self._rules
        if closure is not None and state.is_closed:
            when = f"at {clock(closure.until_ms)}" if closure.until_ms else "when the cluster file changes"
            return f"{name} is closed ({closure_text(closure)}), next try {when}"
        if state.left < at_once:
            return f"{name} has {state.present} of at most {state.most} slices{self._why_fewer(state)}"
        if self._hosts_left() < at_once * state.group.hosts_per_slice:
            return f"{self._hosts} of at most {rules.max_hosts} hosts run here (--max-hosts)"
        if closure is not None and state.is_doubtful:
            return f"{name} is tried with one slice ({closure_text(closure)})"
        if state.pause_ms:
            return f"slices of {name} live shortly, the next one is created at {clock(state.last_ms + state.pause_ms)}"
        limits = f"{rules.creates_per_minute} slices a minute and {rules.creates_per_hour} an hour"
        return f"no more than {limits} are created"

    def _why_fewer(self, state: GroupState) -> str:
        template = state.group.template
        hosts = template.hosts if isinstance(template, ManualTemplate) else ()
        bad = {host: self._avoided[host] for host in hosts if host in self._avoided}
        if state.most == state.group.max_slices or not bad:
            return ""
        host = min(bad, key=bad.__getitem__)
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        return f" ({host}{more} failed before; next try at {clock(bad[host])})"

    def note_shortage(self, states: Iterable[GroupState], at_once: int) -> None:
        """Record that a demand waits for these groups: where slices share a limit, idle ones go sooner."""
        left = self._hosts_left()
        self.is_crowded |= any(state.left and left < at_once * state.group.hosts_per_slice for state in states)

    def pools_short(self) -> set[str]:
        """Return the quota pools that are used up while demands wait for them."""
        return {
            state.group.quota_pool
            for state in self.states.values()
            if state.missing
            and state.is_closed
            and state.closure is not None
            and state.closure.outcome is Outcome.QUOTA
        }


def closure_text(closure: Closure) -> str:
    """Return what the provider answered."""
    return f"{closure.outcome}: {closure.words}" if closure.words else str(closure.outcome)


def clock(at_ms: int) -> str:
    """Return a time of day, for people."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%H:%M:%S} UTC"


def _most(group: ScaleGroup, bad: Mapping[str, int]) -> int:
    """Return the maximum number of slices: manual ones need hosts that do not back off."""
    template = group.template
    if not isinstance(template, ManualTemplate):
        return group.max_slices
    size = group.hosts_per_slice
    ranges = (template.hosts[at : at + size] for at in range(0, len(template.hosts) - size + 1, size))
    return min(group.max_slices, sum(not any(host in bad for host in hosts) for hosts in ranges))
