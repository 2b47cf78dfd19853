"""Prefilled attempts: each starts when another attempt on this worker ends, or is handed back."""

import asyncio
from collections.abc import Callable
from typing import Final

from iris.domain.resources import Resources
from iris.domain.states import FailureKind, TaskState
from iris.worker.attempts.attempt import Attempt

HAND_BACK_S: float = 0.5
_HOST_FAULTS: Final = frozenset({FailureKind.WORKER, FailureKind.DEVICE, FailureKind.PREEMPTED, FailureKind.DISK})


class PrefillQueue:
    """Queue of prefilled attempts, in order of arrival.

    Args:
        hand_back: Called with an attempt that will not start, and the reason.
        hand_back_s: Maximum time in the queue; None for HAND_BACK_S.
    """

    def __init__(self, hand_back: Callable[[Attempt, str], None], hand_back_s: float | None = None) -> None:
        self._hand_back = hand_back
        self._hand_back_s = HAND_BACK_S if hand_back_s is None else hand_back_s
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, tuple[Attempt, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._low = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, attempt: Attempt) -> None:
        """Add an attempt to the queue."""
        attempt.is_prefilled = True
        self._waiting[attempt.attempt_id] = (attempt, self._loop.time() + self._hand_back_s)
        self._low = len(self._waiting) // 2
        self._arm()

    def is_news_patient(self) -> bool:
        """Return whether the report of the latest end can be delayed, because the queue is still long enough.

        The worker reports when half of the queue has started, then half of the rest, and so on. The controller can then
        refill the queue before it is empty.
        """
        if len(self._waiting) > self._low:
            return True
        self._low = len(self._waiting) // 2
        return False

    def remove(self, attempt: Attempt) -> None:
        """Remove an attempt from the queue, because it starts or was stopped."""
        attempt.is_prefilled = False
        del self._waiting[attempt.attempt_id]

    def first(self) -> Attempt | None:
        """Return the attempt at the head of the queue."""
        return next((attempt for attempt, _ in self._waiting.values()), None)

    def follow(self, ended: Attempt) -> Attempt | None:
        """Return the attempt that starts in place of an ended one, if any.

        Return None if the ended attempt was stopped to make room for others, or failed because of the host: the next
        attempt would fail, too.
        """
        reached = ended.state
        if reached.failure in _HOST_FAULTS:
            self.hand_back_all(f"handed back before its start: {ended.attempt_id} failed because of the host")
        elif reached.stop is None and reached.task_state is not TaskState.PENDING:
            return self._take(ended.request.launch.resources)
        return None

    def _take(self, freed: Resources) -> Attempt | None:
        for attempt, _ in self._waiting.values():
            if attempt.request.launch.resources.fits(freed):
                self.remove(attempt)
                return attempt
        return None

    def hand_back_all(self, reason: str) -> None:
        """Hand back all attempts of the queue."""
        for attempt, _ in list(self._waiting.values()):
            self.remove(attempt)
            self._hand_back(attempt, reason)

    def _arm(self) -> None:
        if self._timer is None and self._waiting:
            _, due = next(iter(self._waiting.values()))
            self._timer = self._loop.call_at(due, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        for attempt, due in list(self._waiting.values()):
            if due <= now:
                self.remove(attempt)
                self._hand_back(
                    attempt, f"handed back before its start: it waited {self._hand_back_s:g} s in the queue"
                )
        self._arm()
