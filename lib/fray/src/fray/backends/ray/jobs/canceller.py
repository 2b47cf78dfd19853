"""Stops Ray's tasks, by the one way that does not endanger the process that owns them."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ray

from rigging.process.latch import Latch

logger = logging.getLogger(__name__)

KILL_AFTER_SECONDS = 10.0
_SESSION_SECONDS = 60.0


class _Order(NamedTuple):
    due: float
    refs: tuple[Any, ...]
    force: bool
    done: Latch


class TaskCanceller:
    """Stops tasks of one client, which their owner does not do itself: it has the session ask it to.

    Where the owner calls `ray.cancel` while a task's answer arrives, the caller and the thread that takes the answer
    both end the task, and Ray ends the process for that: with code 1, at once, without a word (2.60, "Tried to complete
    task that was not pending"). What another process asks for is done by the very thread that takes answers.

    Args:
        ask: Asks the client's session within so many seconds; starts it, if need be (`SessionLink.ask`).
        kill_after: Seconds that what is stopped gently has until it is killed.
    """

    def __init__(
        self, ask: Callable[[Callable[[Any], Any], float], Any], kill_after: float = KILL_AFTER_SECONDS
    ) -> None:
        self._ask = ask
        self._kill_after = kill_after
        self._changed = threading.Condition()
        self._orders: list[_Order] = []
        self._closed = False
        self._thread: threading.Thread | None = None

    def stop(self, refs: Sequence[Any], gently: bool, done: Latch) -> None:
        """See to it that tasks end; returns before they do.

        Args:
            refs: The tasks; they may have ended.
            gently: Interrupt them first, so that a program's process group can be ended in order, and kill their
                processes only after a while; otherwise at once.
            done: Opened when that is no longer needed.
        """
        now = time.monotonic()
        orders = [_Order(now, tuple(refs), not gently, done)]
        if gently:
            orders.append(_Order(now + self._kill_after, tuple(refs), True, done))
        with self._changed:
            closed = self._closed
            if not closed:
                self._orders += orders
                self._wake()
        if closed:  # and the session has gone
            cancel_tasks(refs, not gently)

    def close(self) -> None:
        """End the thread; what is not stopped by now is left to Ray, which ends it with its owner."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_SESSION_SECONDS)

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="fray-canceller", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _loop(self) -> None:
        while True:
            with self._changed:
                due = self._take_due()
                if not due:
                    if self._closed:
                        return
                    first = min((order.due for order in self._orders), default=None)
                    self._changed.wait(None if first is None else max(0.0, first - time.monotonic()))
                    continue
            for force in (False, True):
                refs = [ref for order in due if order.force is force for ref in order.refs]
                if refs:
                    self._cancel(refs, force)

    def _take_due(self) -> list[_Order]:
        now = time.monotonic()
        wanted = [order for order in self._orders if not order.done.is_open()]
        self._orders = [order for order in wanted if order.due > now]
        return [order for order in wanted if order.due <= now]

    def _cancel(self, refs: list[Any], force: bool) -> None:
        try:
            self._ask(lambda session: session.cancel.remote(refs, force), _SESSION_SECONDS)
        except ray.exceptions.GetTimeoutError:
            # It is with the session, which acts when it can.
            logger.warning("%d tasks are told to stop later: the session has not answered yet", len(refs))
        except Exception as error:
            # The session is gone, or the connection, in whatever way: no job must go on for that.
            logger.warning("the session cannot stop tasks (%s): stopping %d directly", type(error).__name__, len(refs))
            cancel_tasks(refs, force)


def cancel_tasks(refs: Sequence[Any], force: bool) -> None:
    """Cancel tasks with all that they started; not to be called by their owner (see `TaskCanceller`)."""
    if ray.is_initialized():
        for ref in refs:
            ray.cancel(ref, force=force, recursive=True)
