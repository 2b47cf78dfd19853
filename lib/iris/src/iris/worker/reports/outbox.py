"""Queues reports for the controller: the last observation of each attempt, and log bytes from an offset on."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from iris.domain.usage import Usage
from iris.worker.reports.logs import AttemptLog
from iris.worker.types import Observation

MESSAGE_LOG_BYTES: Final = 1024 * 1024
ATTEMPT_LOG_BYTES: Final = 256 * 1024
"""Maximum size of one log's part of a message, so that one verbose task does not delay the others."""
LOG_WINDOW_BYTES: Final = 4 * 1024 * 1024
"""Maximum number of unacknowledged bytes of one log."""
_MESSAGE_OBSERVATIONS: Final = 2000
COMPANY_S: float = 0.05
"""Maximum delay of reports that can wait for a batch."""


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A piece of an attempt's log."""

    attempt_id: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ReportBatch:
    """The content of one message. Log chunks precede observations, which may report the end of a log."""

    observations: list[Observation]
    logs: list[LogChunk]
    usage: dict[str, Usage] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.observations or self.logs or self.usage)


class ReportOutbox:
    """Queues reports, replaces outdated ones, and returns them in batches; `wait` returns when the queue is not empty.

    Args:
        is_patient: Returns whether reports may be delayed to send more of them in a batch.
    """

    def __init__(
        self, log_of: Callable[[str], AttemptLog | None], is_patient: Callable[[], bool] = lambda: False
    ) -> None:
        self._log_of = log_of
        self._is_patient = is_patient
        self._later: asyncio.TimerHandle | None = None
        self._observations: dict[str, Observation] = {}
        self._usage: dict[str, Usage] = {}
        self._logs: dict[str, None] = {}  # an ordered set: the longest waiting first
        self._news = asyncio.Event()
        self._quiet = asyncio.Event()
        self.leaving, self.ending = False, ""

    def leave(self, ending: str = "") -> None:
        """Report from now on that this worker is leaving, and why the platform stops its host; empty if it does not."""
        self.leaving, self.ending = True, ending
        self._news.set()

    def observe(self, observation: Observation) -> None:
        """Queue an observation, replacing the attempt's unsent one."""
        self._observations[observation.attempt_id] = observation
        self._tell()

    def log_grew(self, attempt_id: str) -> None:
        """Record that there are unsent log bytes."""
        self._logs[attempt_id] = None
        self._tell()

    def used(self, attempt_id: str, usage: Usage) -> None:
        """Queue an attempt's usage, replacing its unsent one."""
        self._usage[attempt_id] = usage
        self._tell()

    def forget(self, attempt_id: str) -> None:
        self._usage.pop(attempt_id, None)
        self._observations.pop(attempt_id, None)
        self._logs.pop(attempt_id, None)

    def clear(self) -> None:
        """Clear the queue at the end of a session, because the next session starts with the whole inventory."""
        self._observations.clear()
        self._usage.clear()
        self._logs.clear()
        self._news.clear()

    def _tell(self) -> None:
        self._quiet.clear()
        if self._news.is_set():
            return
        if not self._is_patient():
            self._tell_now()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(COMPANY_S, self._tell_now)

    def _tell_now(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        self._news.set()

    async def wait(self) -> None:
        """Wait until `take` has a batch."""
        await self._news.wait()

    def delivered(self) -> None:
        """Record that the last batch was passed to the transport."""
        if not self._observations and not self._logs:
            self._quiet.set()

    async def wait_until_delivered(self) -> None:
        """Wait until all reports are sent."""
        await self._quiet.wait()

    def take(self) -> ReportBatch:
        """Return messages to send now; empty if the rest must wait for acknowledgements."""
        self._news.clear()
        logs = self._take_logs()
        observations: list[Observation] = []
        for attempt_id in list(self._observations):
            if attempt_id in self._logs and self._observations[attempt_id].state.is_terminal:
                continue  # its end is told once its last byte is on the way
            observations.append(self._observations.pop(attempt_id))
            if len(observations) == _MESSAGE_OBSERVATIONS:
                self._news.set()
                break
        usage, self._usage = self._usage, {}
        for observation in observations:
            if observation.usage is not None:
                usage.pop(observation.attempt_id, None)
        return ReportBatch(observations, logs, usage)

    def _take_logs(self) -> list[LogChunk]:
        chunks: list[LogChunk] = []
        total = 0
        for attempt_id in list(self._logs):
            log = self._log_of(attempt_id)
            if log is None:
                del self._logs[attempt_id]
                continue
            budget = min(ATTEMPT_LOG_BYTES, log.acked + LOG_WINDOW_BYTES - log.sent, MESSAGE_LOG_BYTES - total)
            data = log.read(log.sent, budget) if budget > 0 else b""
            if data:
                chunks.append(LogChunk(attempt_id, log.sent, data))
                log.sent += len(data)
                total += len(data)
            del self._logs[attempt_id]
            if log.sent < log.size:
                self._logs[attempt_id] = None  # again, behind the others
                if log.sent - log.acked < LOG_WINDOW_BYTES:
                    self._news.set()
            else:
                log.release_if_done()
            if total >= MESSAGE_LOG_BYTES:
                if self._logs:
                    self._news.set()
                break
        return chunks
