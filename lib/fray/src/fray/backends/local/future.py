"""Results of actors' calls that are not there yet."""

import threading
from concurrent.futures import CancelledError, Future
from typing import Any

from rigging.errors import Conflict, DeadlineExceeded


class LocalActorFuture:
    """The result of a call of a local actor."""

    def __init__(self, what: str, future: "Future[Any]") -> None:
        self._what = what
        self._future = future

    def result(self, timeout: float | None = None) -> Any:
        try:
            return self._future.result(None if timeout is None else min(timeout, threading.TIMEOUT_MAX))
        except TimeoutError:
            # Also what the method itself may have raised: only ours while the call still runs.
            if self._future.done():
                raise
            raise DeadlineExceeded(f"{self._what}: no result after {timeout} s") from None
        except CancelledError:
            # Also what the method itself may have raised.
            if not self._future.cancelled():
                raise
            raise Conflict(f"{self._what}: the actor was shut down before the call began") from None

    def done(self) -> bool:
        return self._future.done()
