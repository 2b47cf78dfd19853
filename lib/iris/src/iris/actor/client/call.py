"""The future result of one call of an actor."""

import threading
from collections.abc import Callable
from typing import Any, Protocol

from iris.actor.client.pending import PendingCall
from iris.rpc.forks import in_fork
from rigging.errors import Conflict, DeadlineExceeded
from rigging.process.callbacks import call_apart


class AnyCaller(Protocol):
    """Sends calls to an actor."""

    @property
    def label(self) -> str: ...

    def submit(self, call: PendingCall) -> None: ...

    def cancel(self, call: PendingCall) -> None: ...

    def withdraw(self, call: PendingCall) -> bool: ...


class ActorCall:
    """The future result of a call. Thread-safe."""

    def __init__(self, caller: AnyCaller, call: PendingCall) -> None:
        self._caller = caller
        self._call = call

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the call and return its value, or raise its exception, caused by the actor's traceback.

        Raises:
            DeadlineExceeded: No result after `timeout` seconds (the call continues), or before the call's own deadline.
            ActorDied: The actor ended or restarted before it answered. ActorStopped: The actor was shut down before the
                call started.
            Conflict: The call was cancelled, the client was closed, or this process is a fork, which results do not
                reach.
        """
        self._refuse_in_fork()
        try:
            error = self._call.future.exception(None if timeout is None else min(timeout, threading.TIMEOUT_MAX))
        except TimeoutError:
            raise DeadlineExceeded(f"{self._what}: no result after {timeout} s") from None
        if error is not None:
            raise error.with_traceback(None)  # else it grows by each who asks
        return self._call.future.result().value()

    def done(self) -> bool:
        """Return whether `result` would return or raise immediately."""
        return self._call.future.done()

    def cancel(self) -> bool:
        """Cancel the call: it does not run if it has not started. A running call continues, and its result is
        dropped.
        """
        if not self._call.take_back(Conflict(f"{self._what} was cancelled")):
            return False
        self._caller.cancel(self._call)
        return True

    def withdraw(self) -> bool:
        """Cancel the call unless it has started, and return whether it was cancelled. Waits for the actor's answer."""
        self._refuse_in_fork()
        return not self.done() and self._caller.withdraw(self._call)

    def add_done_callback(self, callback: Callable[["ActorCall"], object]) -> None:
        """Call `callback(self)` after the call has ended. One thread of this process runs all such callbacks.

        The callback may make further calls, but while it blocks, other callbacks wait. Its exceptions are logged.
        """
        self._refuse_in_fork()
        self._call.future.add_done_callback(lambda _: call_apart(lambda: callback(self)))

    def _refuse_in_fork(self) -> None:
        if not self._call.future.done() and in_fork():
            raise Conflict(f"{self._what}: its result goes to the process that made the call, not to this fork")

    @property
    def _what(self) -> str:
        return f"{self._call.method!r} of actor {self._caller.label}"
