"""A batch whose commit the disk refused, and its waiting callers."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from iris.core.state.batch import Batch
from iris.domain.errors import StorageUnavailable
from rigging.errors import Unavailable

_FIRST_RETRY_S: Final = 0.1
_LONGEST_RETRY_S: Final = 5.0

Answer = tuple["asyncio.Future[object]", object]
"""A caller that waits for a commit, and its answer."""


@dataclass(slots=True)
class Stall:
    """Commits have failed since `since_ms` (Unix ms).

    Args:
        batch: The changes in memory that are not on disk.
        error: The error of the last attempt.
    """

    batch: Batch
    answers: Sequence[Answer]
    error: StorageUnavailable
    since_ms: int
    timer: asyncio.TimerHandle | None = None
    _pause_s: float = _FIRST_RETRY_S

    def next_pause_s(self) -> float:
        """Return the seconds until the next attempt, longer each time."""
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, _LONGEST_RETRY_S)
        return pause_s

    def reason(self, now_ms: int) -> str:
        """Return the refusal for new callers."""
        waited_s = max(now_ms - self.since_ms, 0) / 1000
        return (
            f"the controller cannot write its database since {waited_s:.0f} s ({self.error}); what runs goes on, and "
            "nothing else is accepted until it can"
        )

    def give_up(self) -> None:
        """Fail all waiting callers: the batch was not stored."""
        if self.timer is not None:
            self.timer.cancel()
        for future, _ in self.answers:
            if not future.done():
                future.set_exception(Unavailable(f"the change could not be stored: {self.error}"))
