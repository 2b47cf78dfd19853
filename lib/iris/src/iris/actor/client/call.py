"""The result of one call of an actor, when it is there."""

import threading
from collections.abc import Callable
from typing import Any, Protocol

from iris.actor.client.pending import PendingCall
from iris.rpc.forks import in_fork
from rigging.errors import Conflict, DeadlineExceeded
from rigging.process.callbacks import call_apart


class AnyCaller(Protocol):
    """Brings calls to an actor."""

    @property
    def label(self) -> str: ...

    def submit(self, call: PendingCall) -> None: ...

    def cancel(self, call: PendingCall) -> None: ...


class ActorCall:
    """The result of a call, when it is there. Thread-safe."""

    def __init__(self, caller: AnyCaller, call: PendingCall) -> None:
        self._caller = caller
        self._call = call

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the call and return its value, or raise what it raised, with the actor's traceback as its cause.

        Raises:
            DeadlineExceeded: No result after `timeout` seconds (the call goes on), or before the call's own deadline.
            ActorDied: The actor ended, or was started anew, before it answered. ActorStopped: It was shut down before.
            Conflict: The call was cancelled, or the client closed; or this is a fork, which the result does not reach.
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
        """True if `result` would return or raise at once."""
        return self._call.future.done()

    def cancel(self) -> bool:
        """Take the call back: it does not run if it has not begun; what runs goes on, and its result is dropped."""
        if not self._call.take_back(Conflict(f"{self._what} was cancelled")):
            return False
        self._caller.cancel(self._call)
        return True

    def add_done_callback(self, callback: Callable[["ActorCall"], object]) -> None:
        """Call `callback(self)` when the call has ended, in a thread for all such callbacks of this process.

        It may make further calls; while it waits for something, the other callbacks wait too. What it raises is logged.
        """
        self._refuse_in_fork()
        self._call.future.add_done_callback(lambda _: call_apart(lambda: callback(self)))

    def _refuse_in_fork(self) -> None:
        if not self._call.future.done() and in_fork():
            raise Conflict(f"{self._what}: its result goes to the process that made the call, and this is a fork of it")

    @property
    def _what(self) -> str:
        return f"{self._call.method!r} of actor {self._caller.label}"
