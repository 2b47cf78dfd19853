"""Ends of attempts that wait for their logs: a client that sees an end can read all of its log."""

import asyncio
import logging
from collections.abc import Callable

from iris.controller.engine.engine import Engine
from iris.controller.logs.hub import LogHub
from iris.controller.workers.connected import ConnectedWorker, Report
from iris.domain.events import AttemptObserved
from iris.domain.ids import AttemptId

logger = logging.getLogger(__name__)


class HeldReports:
    """Holds the reported end of a wanted attempt until the controller has its whole log.

    Args:
        engine: The engine, whose view tells the wanted attempts.
        hub: The logs.
        wait_s: How long an end waits.
        pass_on: Called with each end that has waited.
    """

    def __init__(self, engine: Engine, hub: LogHub, wait_s: float, pass_on: Callable[[AttemptObserved], None]) -> None:
        self._engine = engine
        self._hub = hub
        self._wait_s = wait_s
        self._pass = pass_on
        self._loop = asyncio.get_running_loop()

    def holds(self, session: ConnectedWorker, report: Report) -> bool:
        """Hold a report back if its log is incomplete, and return whether that is so."""
        if not self._lacks_log(report):
            return False
        attempt = report.event.attempt_id
        if attempt not in session.held:
            timer = self._loop.call_later(self._wait_s, self._give_up, session, attempt)
            session.held[attempt] = (report, timer)
            logger.debug("the end of %s waits for its log", attempt)
        return True

    def note_log(self, session: ConnectedWorker, attempt: AttemptId, size: int) -> None:
        """Pass an attempt's end on if its log has grown to its full size."""
        held = session.held.get(attempt)
        if held is not None and size >= held[0].log_size:
            self._pass_on(session, attempt)

    def pass_all_on(self, session: ConnectedWorker) -> None:
        """Pass on what a worker that is not listened to any more has reported."""
        for attempt in list(session.held):
            self._pass_on(session, attempt)

    def release(self, session: ConnectedWorker) -> None:
        """Forget what a worker has reported: when it comes back, it reports it again, with the rest of the log."""
        for _, timer in session.held.values():
            timer.cancel()
        session.held.clear()

    def _lacks_log(self, report: Report) -> bool:
        event = report.event
        if not event.state.is_terminal or not report.log_size:
            return False
        view = self._engine.view
        task, number = view.find_attempt(event.attempt_id)
        wanted = task is not None and task.attempt == number and event.attempt_id in view.bookings
        lost = view.lost.get(event.attempt_id)
        wanted = wanted or (lost is not None and lost.may_return)
        return wanted and self._hub.attempt_size(event.attempt_id) < report.log_size

    def _give_up(self, session: ConnectedWorker, attempt: AttemptId) -> None:
        report, _ = session.held[attempt]
        have = self._hub.attempt_size(attempt)
        logger.warning("%s ended with %d of %d bytes of its log here", attempt, have, report.log_size)
        self._pass_on(session, attempt)

    def _pass_on(self, session: ConnectedWorker, attempt: AttemptId) -> None:
        report, timer = session.held.pop(attempt)
        timer.cancel()
        self._pass(report.event)
