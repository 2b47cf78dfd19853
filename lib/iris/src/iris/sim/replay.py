"""Replays a controller's history: the same events must lead to the same decisions of the scheduler."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from iris.core.rules.reduce import reduce
from iris.core.state.batch import Batch
from iris.core.state.view import ClusterView
from iris.domain.events import AutoCordoned, ControllerStarted, Event, PlaceClosed, Record, Requested, SliceChanged
from iris.sched.plan import pause_ms, plan_round
from rigging.errors import MarinError

_NOTES: Final = (AutoCordoned, ControllerStarted, Requested, SliceChanged, PlaceClosed)


def differences(history: Iterable[Record]) -> Iterator[str]:
    """Yield every turn in which the scheduler's new decisions differ from the history.

    Args:
        history: All records of a cluster from its first start, in order.
    """
    replayed = _Replay()
    for _, records in groupby(history, key=lambda record: (record.turn, record.at_ms)):
        turn = list(records)
        if any(isinstance(record.what, ControllerStarted) for record in turn):
            replayed.restart()
        events = [(record.is_decision, record.what) for record in turn if not isinstance(record.what, _NOTES)]
        replayed.apply([what for is_decision, what in events if not is_decision], turn[0].at_ms)
        decided = [what for is_decision, what in events if is_decision]
        again = replayed.decide(turn[0].at_ms, may_rest=not decided)
        if again != decided:
            yield f"turn {turn[0].turn} at {turn[0].at_ms}: decided {decided}; asked again {again}"


class _Replay:
    """A view built only from events."""

    def __init__(self) -> None:
        self._view = ClusterView()
        self._stored = Batch()

    def restart(self) -> None:
        """Reset the state that is only in memory, like a controller that loads the stored state."""
        changes = self._stored.changes
        self._view = ClusterView.load(
            changes.jobs.values(),
            changes.tasks.values(),
            [replace(item, connected=False, is_late=False, trouble="") for _, item in sorted(changes.workers.items())],
            None,
            changes.budgets.values(),
            stopping=[(name, found) for name, found in sorted(changes.stopping.items()) if found is not None],
            lost=[(name, found) for name, found in sorted(changes.lost.items()) if found is not None],
        )

    def apply(self, events: Sequence[Event], at_ms: int) -> list[Event]:
        """Reduce events, and return the accepted ones."""
        applied = []
        for event in events:
            try:
                outcome = reduce(self._view, event, at_ms)
            except MarinError:
                continue
            self._view.apply(outcome.changes)
            self._stored.add(outcome)
            applied.append(event)
        return applied

    def decide(self, at_ms: int, may_rest: bool) -> list[Event]:
        """Plan and apply a round, like the engine.

        Args:
            at_ms: Unix ms.
            may_rest: Whether the engine may have postponed the round, because very many jobs were pending.
        """
        view = self._view
        if not (view.queue or view.prefilled_on) or (may_rest and pause_ms(view)):
            return []
        return self.apply(list(plan_round(view, at_ms).events()), at_ms)
