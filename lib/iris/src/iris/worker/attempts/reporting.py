"""Reports to the controller about the attempts of this worker: their states and their logs."""

import asyncio
from collections.abc import Callable
from typing import Final

from iris.domain.states import TaskState
from iris.rpc.logformat import encode
from iris.worker.attempts.attempt import Attempt
from iris.worker.attempts.known import KnownAttempts
from iris.worker.output.log_writer import LogWriter
from iris.worker.reports.logs import AttemptLog
from iris.worker.reports.outbox import ReportOutbox
from iris.worker.types import Observation

_QUIET_BUILD_S: Final = 0.02
"""Delay of the report that preparation has started; most preparations end sooner."""


class AttemptReports:
    """Puts reports about attempts into an outbox; the session sends them.

    Args:
        attempts: The known attempts.
        now_ms: The clock of observations (Unix ms).
        is_patient: Returns whether the report of an end can be delayed.
        log_limit_bytes: Maximum size of an attempt's log on this disk; 0 for the default.
    """

    def __init__(
        self,
        attempts: KnownAttempts,
        now_ms: Callable[[], int],
        is_patient: Callable[[], bool],
        log_limit_bytes: int = 0,
    ) -> None:
        self.outbox = ReportOutbox(self._log_of, is_patient)
        self._attempts = attempts
        self._now_ms = now_ms
        self._log_limit = log_limit_bytes
        self._loop = asyncio.get_running_loop()

    def report(self, attempt: Attempt, at_once: bool = True) -> None:
        """Report the attempt's state, now or after a short delay; a delayed report is dropped if the attempt ends
        first.
        """
        if at_once:
            self.outbox.observe(attempt.observation())
        elif attempt.report_timer is None:
            attempt.report_timer = self._loop.call_later(_QUIET_BUILD_S, self._report_late, attempt)

    def report_unknown(self, attempt_id: str, state: TaskState, why: str) -> None:
        """Report an attempt that this worker does not know, so that the controller releases its resources."""
        self.outbox.observe(Observation(attempt_id, state, self._now_ms(), error=why))

    def used(self, attempt: Attempt) -> None:
        """Report the attempt's usage."""
        self.outbox.used(attempt.attempt_id, attempt.usage)

    def log_grew(self, attempt: Attempt, size: int) -> None:
        """Record that an attempt's log has grown to this many bytes, and ship the new ones."""
        if attempt.log.grew(size):
            self.outbox.log_grew(attempt.attempt_id)

    def add_note(self, attempt: Attempt, text: str, at_ms: int) -> None:
        """Append a line from iris to the log of an attempt that has exited."""
        attempt.log.append_words(encode(True, at_ms, text.encode(), note=True))
        self.outbox.log_grew(attempt.attempt_id)

    def write_log(self, attempt: Attempt, text: str) -> None:
        """Write a line from iris as the end of the log of an attempt that never reached the guardian."""
        writer = LogWriter(attempt.log_path, self._log_limit)
        writer.feed(True, f"{text}\n".encode(errors="replace"), self._now_ms())
        writer.finish(self._now_ms())
        self.log_grew(attempt, writer.size)

    def resume(self, offsets: dict[str, int]) -> None:
        """Ship every log from the controller's offset on, at the start of a session."""
        for attempt in self._attempts:
            if attempt.ended and attempt.log.acked < attempt.log.size:
                self.report(attempt)  # held back from the inventory
            attempt.log.rewind(offsets.get(attempt.attempt_id, 0))
            self._ship_rest(attempt)

    def acknowledge(self, attempt_id: str, offset: int) -> None:
        """Record that the controller has received an attempt's log up to this offset."""
        attempt = self._attempts.get(attempt_id)
        if attempt is not None:
            attempt.log.acknowledge(offset)
            self._ship_rest(attempt)

    def _ship_rest(self, attempt: Attempt) -> None:
        if attempt.log.sent < attempt.log.size:
            self.outbox.log_grew(attempt.attempt_id)

    def _report_late(self, attempt: Attempt) -> None:
        attempt.report_timer = None
        if not attempt.ended:
            self.report(attempt)

    def _log_of(self, attempt_id: str) -> AttemptLog | None:
        attempt = self._attempts.get(attempt_id)
        return attempt.log if attempt is not None else None
