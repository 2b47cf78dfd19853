"""Users' callbacks run in a dedicated thread, so that they may make further calls and wait for them."""

import logging
import os
import queue
import threading
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)


class CallbackThread:
    """Run callbacks one after another in a daemon thread, started by the first one."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def call(self, callback: Callable[[], object]) -> None:
        """Call `callback()` after the earlier ones. Its exceptions are logged."""
        self._waiting.put(callback)
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._call_all, name="rigging-callbacks", daemon=True)
                    self._thread.start()

    def _call_all(self) -> None:
        while True:
            callback = self._waiting.get()
            try:
                callback()
            except BaseException:  # of a user's: it must not hurt the callbacks behind it
                logger.exception("a callback failed")
            del callback


_shared: Final[list[CallbackThread]] = [CallbackThread()]


def call_apart(callback: Callable[[], object]) -> None:
    """Call `callback()` in the process-wide thread for users' callbacks, after the earlier ones."""
    _shared[0].call(callback)


def _renew() -> None:
    # A fork has neither the thread, nor is it to call what its parent calls.
    _shared[0] = CallbackThread()


os.register_at_fork(after_in_child=_renew)
