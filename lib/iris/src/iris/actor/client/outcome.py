"""Outcomes of calls: `concurrent.futures.Future` without what calls do not need, as each pays for it."""

import logging
import queue
import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from rigging.errors import MarinError
from rigging.latch import Latch

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class CallResult(Generic[Result]):
    """A result or an error that comes once. Thread-safe."""

    __slots__ = ("_callbacks", "_error", "_latch", "_lock", "_result")

    def __init__(self, *callbacks: Callable[[], object]) -> None:
        self._lock = threading.Lock()
        self._latch = Latch()
        self._result: Result | None = None
        self._error: MarinError | None = None
        self._callbacks: list[Callable[[], object]] = list(callbacks)

    @property
    def ended(self) -> bool:
        """True once the result or the error is set."""
        return self._latch.is_open()

    def succeed(self, result: Result) -> bool:
        """End it; False when it had ended before."""
        return self._end(result, None)

    def fail(self, error: MarinError) -> bool:
        """End it; False when it had ended before."""
        return self._end(None, error)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds for the end; whether it has come."""
        return self._latch.wait(timeout)

    def get(self) -> Result:
        """The result, when it has ended. Raises the error."""
        if self._error is not None:
            raise self._error.with_traceback(None)  # else it grows by each who asks
        assert self._result is not None, "asked before the end"
        return self._result

    def on_end(self, callback: Callable[[], object]) -> None:
        """Call `callback()` when it ends, in the thread that ends it; at once when it has."""
        with self._lock:
            if not self._latch.is_open():
                self._callbacks.append(callback)
                return
        _call(callback)

    def _end(self, result: Result | None, error: MarinError | None) -> bool:
        with self._lock:
            if self._latch.is_open():
                return False
            self._result, self._error = result, error
            self._latch.open()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            _call(callback)
        return True


def _call(callback: Callable[[], object]) -> None:
    try:
        callback()
    except BaseException:  # of a user's: it must not hurt who ends the call
        logger.exception("a callback of an actor's call failed")


# ---- users' callbacks, in a thread that nothing else needs: they may call other actors and wait for them ----

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
        _call(_waiting.get())
