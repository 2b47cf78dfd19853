"""Policies that choose slices in a simulation: the autoscaler's plan, and two to compare it with."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from iris.autoscale.closures import Closure, after_answer
from iris.autoscale.lives import Lives, after_loss
from iris.autoscale.model import Answer, Outcome, SliceRecord, SliceState, SliceUse
from iris.autoscale.plan import plan
from iris.autoscale.planning.demand import Demand
from iris.autoscale.rules import AutoscaleRules
from iris.domain.constraints import evaluate
from iris.domain.scale_groups import ScaleGroup


class Policy(Protocol):
    """Decides about slices.

    Attributes:
        look_s: Looks are at least so often. acts_at_once: Whether every event is followed by a look, too.
    """

    look_s: float
    acts_at_once: bool

    def choose(
        self,
        now_ms: int,
        demands: Sequence[Demand],
        slices: Mapping[str, SliceRecord],
        use: Mapping[str, SliceUse],
    ) -> tuple[Sequence[str], Sequence[str]]:
        """Return the groups of slices to create, and the names of slices to release."""
        ...

    def answered(self, group: ScaleGroup, answer: Answer, now_ms: int) -> None:
        """Handle what a creation led to."""
        ...

    def lost(self, record: SliceRecord, now_ms: int) -> None:
        """Handle a preempted slice."""
        ...


class PlanPolicy:
    """The autoscaler's plan."""

    look_s, acts_at_once = 10.0, True

    def __init__(self, groups: Sequence[ScaleGroup], rules: AutoscaleRules) -> None:
        self._groups, self._rules = groups, rules
        self._lives: Lives = ()
        self._creates: list[int] = []
        self.closures: Mapping[str, Closure] = {}

    def choose(
        self, now_ms: int, demands: Sequence[Demand], slices: Mapping[str, SliceRecord], use: Mapping[str, SliceUse]
    ) -> tuple[Sequence[str], Sequence[str]]:
        """Return the plan's creations and releases."""
        self._creates = [at_ms for at_ms in self._creates if now_ms - at_ms < 3_600_000]
        made = plan(
            now_ms, demands, self._groups, slices, use, self.closures, self._lives, self._rules, self._creates
        )  # fmt: skip
        self._creates += [now_ms] * len(made.create)
        return made.create, [*made.release]

    def answered(self, group: ScaleGroup, answer: Answer, now_ms: int) -> None:
        """Close or open what the answer concerns."""
        self.closures = after_answer(self.closures, group, answer, now_ms, 0)

    def lost(self, record: SliceRecord, now_ms: int) -> None:
        """Count the life."""
        self._lives = after_loss(self._lives, record, now_ms)


class FixedMinute(PlanPolicy):
    """The same plan once a minute, where every failure closes its group for a minute."""

    look_s, acts_at_once = 60.0, False

    def answered(self, group: ScaleGroup, answer: Answer, now_ms: int) -> None:
        """Close the group for a minute."""
        super().answered(group, answer, now_ms)
        self.closures = {key: replace(item, until_ms=now_ms + 60_000) for key, item in self.closures.items()}

    def lost(self, record: SliceRecord, now_ms: int) -> None:
        """Do nothing."""


_UP_MS: Final = 60_000
_DOWN_MS: Final = 300_000
_BACKOFF_MS: Final = (300_000, 900_000)


class AncestorPolicy:
    """The rules of the ancestor: looks every 10 s, a group grows once a minute and loses one idle slice in five; a
    failure or a preemption pauses its group for 5 to 15 minutes.
    """

    look_s, acts_at_once = 10.0, False

    def __init__(self, groups: Sequence[ScaleGroup]) -> None:
        self._groups = sorted(groups, key=lambda group: group.priority)
        self._up: dict[str, int] = {}
        self._down: dict[str, int] = {}
        self._paused: dict[str, tuple[int, int]] = {}  # until, and the last pause

    def choose(
        self, now_ms: int, demands: Sequence[Demand], slices: Mapping[str, SliceRecord], use: Mapping[str, SliceUse]
    ) -> tuple[Sequence[str], Sequence[str]]:
        """Give each demand to the first group that is not paused and has room."""
        coming = {group.name: 0 for group in self._groups}
        present = dict(coming)
        for record in slices.values():
            present[record.group] += 1
            coming[record.group] += record.state.is_booting
        create: list[str] = []
        for demand in demands:
            self._route(demand, now_ms, coming, present, create)
        for name in create:
            self._up[name] = now_ms
        return create, self._idle(now_ms, slices, use)

    def _route(
        self, demand: Demand, now_ms: int, coming: dict[str, int], present: dict[str, int], create: list[str]
    ) -> None:
        fitting = [group for group in self._groups if _serves(group, demand)]
        if not fitting:
            return
        wanted = -(-demand.tasks // (demand.gang_size or fitting[0].tasks_per_slice(demand.need)))
        for group in fitting:
            known = min(wanted, coming[group.name])
            coming[group.name] -= known
            wanted -= known
        for group in fitting:
            if now_ms < self._paused.get(group.name, (0, 0))[0] or not wanted:
                continue
            count = min(wanted, group.max_slices - present[group.name])
            wanted -= count  # one that has just grown keeps the demand
            if now_ms - self._up.get(group.name, 0) >= _UP_MS:
                create += [group.name] * count
                present[group.name] += count

    def _idle(self, now_ms: int, slices: Mapping[str, SliceRecord], use: Mapping[str, SliceUse]) -> list[str]:
        found = []
        for name, record in slices.items():
            is_idle = record.state is SliceState.JOINED and not use[name].busy and now_ms - record.used_ms >= _DOWN_MS
            if is_idle and now_ms - self._down.get(record.group, 0) >= _DOWN_MS:
                self._down[record.group] = now_ms
                found.append(name)
        return found

    def answered(self, group: ScaleGroup, answer: Answer, now_ms: int) -> None:
        """Pause the group after a failure, longer each time."""
        if answer.outcome is Outcome.DONE:
            self._paused.pop(group.name, None)
        elif now_ms >= self._paused.get(group.name, (0, 0))[0]:
            self._pause(group.name, now_ms)

    def lost(self, record: SliceRecord, now_ms: int) -> None:
        """Pause the group."""
        self._pause(record.group, now_ms)

    def _pause(self, name: str, now_ms: int) -> None:
        first, longest = _BACKOFF_MS
        _, last = self._paused.get(name, (0, 0))
        pause = min(max(first, 2 * last), longest)
        self._paused[name] = (now_ms + pause, pause)


def _serves(group: ScaleGroup, demand: Demand) -> bool:
    fits = demand.need.fits(group.host) and evaluate(demand.constraints, group.host_attributes)
    return fits and group.tasks_per_slice(demand.need) >= demand.gang_size
