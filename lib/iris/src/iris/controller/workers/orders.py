"""The pending orders for one worker, merged, so that the worker's attempts bound their size however slowly it reads."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from iris.domain.ids import AttemptId, JobId
from iris.domain.states import PreemptionReason

COMPANY_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Farewell:
    """The last order of a session. With `exit` the worker stops its attempts and exits."""

    reason: str
    exit: bool


@dataclass(slots=True)
class Outgoing:
    """All pending orders for a worker.

    Args:
        start: (task index, attempt number) by job, and whether the attempt is prefilled. stop: Reason by attempt.
        notices: For the preempted attempts in `stop`: why, and ms between the notice and SIGKILL.
        withdraw: Attempts to hand back, unless they have started.
        log_acks: Stored bytes of each log that grew.
        beat_ack: The highest heartbeat since the last answer; 0 for none.
        execs: Commands in its attempts to attach to. exec_ends: Those whose callers have gone.
    """

    start: dict[JobId, dict[tuple[int, int], bool]] = field(default_factory=dict)
    stop: dict[AttemptId, str] = field(default_factory=dict)
    notices: dict[AttemptId, tuple[PreemptionReason, int]] = field(default_factory=dict)
    withdraw: dict[AttemptId, None] = field(default_factory=dict)
    forget: dict[AttemptId, None] = field(default_factory=dict)
    log_acks: dict[AttemptId, int] = field(default_factory=dict)
    goodbye: Farewell | None = None
    beat_ack: int = 0
    execs: list[str] = field(default_factory=list)
    exec_ends: list[str] = field(default_factory=list)

    @property
    def has_desired(self) -> bool:
        return bool(self.start or self.stop or self.withdraw or self.forget)

    @property
    def is_empty(self) -> bool:
        return not (self.has_desired or self.log_acks or self.goodbye or self.beat_ack or self.execs or self.exec_ends)


class WorkerOrders:
    """Merges the engine's orders for one worker until the session's writer takes them.

    Args:
        company_s: How long acknowledgements of ended attempts wait for other orders.
    """

    def __init__(self, company_s: float = COMPANY_S) -> None:
        self._company_s = company_s
        self._pending = Outgoing()
        self._wake = asyncio.Event()
        self._later: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def start(self, job_id: JobId, index: int, attempt: int, prefilled: bool = False) -> None:
        # What need not wait any more before it was sent is sent once.
        self._pending.start.setdefault(job_id, {})[(index, attempt)] = prefilled
        self._wake.set()

    def stop(self, attempt: AttemptId, reason: str, notice: tuple[PreemptionReason, int] | None = None) -> None:
        # A start of the same attempt that was not sent yet stays: the worker must know it to report its end.
        self._pending.stop[attempt] = reason
        if notice is not None:
            self._pending.notices[attempt] = notice
        self._wake.set()

    def withdraw(self, attempt: AttemptId) -> None:
        # As with `stop`, a start of it that was not sent yet stays.
        self._pending.withdraw[attempt] = None
        self._wake.set()

    def forget(self, attempt: AttemptId) -> None:
        self._pending.stop.pop(attempt, None)
        self._pending.withdraw.pop(attempt, None)
        self._pending.forget[attempt] = None
        self._wake_later()

    def acknowledge_log(self, attempt: AttemptId, size: int) -> None:
        self._pending.log_acks[attempt] = size
        self._wake_later()

    def acknowledge_beat(self, beat: int) -> None:
        self._pending.beat_ack = max(beat, self._pending.beat_ack)
        self._wake.set()

    def attach(self, exec_id: str) -> None:
        """Ask the worker to attach to a command in one of its attempts."""
        self._pending.execs.append(exec_id)
        self._wake.set()

    def detach(self, exec_id: str) -> None:
        """Tell the worker that the caller of a command has gone."""
        self._pending.exec_ends.append(exec_id)
        self._wake.set()

    def goodbye(self, reason: str, exit: bool) -> None:
        """Send a farewell and end the session."""
        self._pending.goodbye = Farewell(reason, exit)
        self._wake.set()

    def close(self) -> None:
        """End the session without a message."""
        self._closed = True
        self._wake.set()

    def _wake_later(self) -> None:
        # The worker is in no hurry for these, and a message of their own would cost more than all else about them.
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(self._company_s, self._wake_late)

    def _wake_late(self) -> None:
        self._later = None
        if not self._pending.is_empty:
            self._wake.set()

    async def take(self, timeout_s: float) -> Outgoing | None:
        """Wait for pending orders and return them; None after `timeout_s`, or when closed.

        Acknowledgements of ended attempts wait up to `company_s` for other orders.
        """
        if not self._wake.is_set():
            try:
                async with asyncio.timeout(timeout_s):
                    await self._wake.wait()
            except TimeoutError:
                return None
        self._wake.clear()
        if self._closed:
            self._wake.set()
        if self._closed or self._pending.is_empty:
            return None
        taken, self._pending = self._pending, Outgoing()
        return taken
