"""Users' callbacks, in a thread that nothing else needs: they may call other actors and wait for them."""

import logging
import queue
import threading
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)

_waiting: Final[queue.SimpleQueue[Callable[[], object]]] = queue.SimpleQueue()
_start_lock = threading.Lock()
_thread: threading.Thread | None = None


def call_apart(callback: Callable[[], object]) -> None:
    """Call `callback()` in the thread for users' callbacks, after those that came before."""
    global _thread
    _waiting.put(callback)
    if _thread is None:
        with _start_lock:
            if _thread is None:
                _thread = threading.Thread(target=_call_all, name="iris-actor-callbacks", daemon=True)
                _thread.start()


def _call_all() -> None:
    while True:
        callback = _waiting.get()
        try:
            callback()
        except BaseException:  # of a user's: it must not hurt the callbacks behind it
            logger.exception("a callback of an actor's call failed")
        del callback
