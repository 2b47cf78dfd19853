"""Holds the ends of gangs' members that failed because of another member, until the others' causes are known."""

import asyncio

from iris.controller.engine.engine import Engine
from iris.core.rules.peer_rules import awaits_peers
from iris.domain.events import AttemptObserved
from iris.domain.ids import AttemptId


class PeerWait:
    """Passes reports on to the engine; those that wait for other members' causes after `wait_s`.

    A report is not acknowledged before it is processed. After a controller's restart its worker repeats it.

    Args:
        wait_s: How long an end waits.
    """

    def __init__(self, engine: Engine, wait_s: float) -> None:
        self._engine = engine
        self._wait_s = wait_s
        self._waiting: dict[AttemptId, asyncio.TimerHandle] = {}

    def awaits(self, event: AttemptObserved) -> bool:
        """Return whether a report must wait, or waits already."""
        return self._wait_s > 0 and awaits_peers(self._engine.view, event)

    def pass_on(self, event: AttemptObserved) -> None:
        """Pass a report on to the engine, now or later."""
        if not self.awaits(event):
            self._engine.post(event)
        elif event.attempt_id not in self._waiting:
            later = asyncio.get_running_loop().call_later(self._wait_s, self._post, event)
            self._waiting[event.attempt_id] = later

    def stop(self) -> None:
        """Drop the waiting reports."""
        for timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()

    def _post(self, event: AttemptObserved) -> None:
        del self._waiting[event.attempt_id]
        self._engine.post(event)
