"""Attempts that were prefilled: each begins in the place of one that ends here, or is handed back."""

import asyncio
from collections.abc import Callable
from typing import Final

from iris.domain.resources import Resources
from iris.domain.states import FailureKind, TaskState
from iris.worker.attempts.attempt import Attempt

HAND_BACK_S: float = 0.5
_HOST_FAULTS: Final = frozenset({FailureKind.WORKER, FailureKind.DEVICE, FailureKind.PREEMPTED, FailureKind.DISK})


class PrefillQueue:
    """Attempts that wait for their turn, the first first.

    Args:
        hand_back: Called with one that will not begin, and why. hand_back_s: So long one waits; None: HAND_BACK_S.
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
        """Let the attempt wait."""
        attempt.is_prefilled = True
        self._waiting[attempt.attempt_id] = (attempt, self._loop.time() + self._hand_back_s)
        self._low = len(self._waiting) // 2
        self._arm()

    def is_news_patient(self) -> bool:
        """Whether the controller need not hear of the latest end now: there is enough to begin until later.

        It is to hear of it when half of what waited has begun, then of half of the rest, and so on: so it can send more
        before all has begun.
        """
        if len(self._waiting) > self._low:
            return True
        self._low = len(self._waiting) // 2
        return False

    def remove(self, attempt: Attempt) -> None:
        """It waits no more: it begins, or was stopped."""
        attempt.is_prefilled = False
        del self._waiting[attempt.attempt_id]

    def first(self) -> Attempt | None:
        """The one whose turn comes next."""
        return next((attempt for attempt, _ in self._waiting.values()), None)

    def follow(self, ended: Attempt) -> Attempt | None:
        """The attempt that begins in the place of one that has ended, if any.

        None when that was stopped, to make room for others; and none at all when the host was at fault: each would fail
        there, one after the other.
        """
        reached = ended.state
        if reached.failure in _HOST_FAULTS:
            self.hand_back_all(f"handed back, not begun: {ended.attempt_id} failed by a fault of the host")
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
        """Nothing of this will begin here."""
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
                    attempt, f"handed back, not begun: its turn did not come within {self._hand_back_s:g} s"
                )
        self._arm()
