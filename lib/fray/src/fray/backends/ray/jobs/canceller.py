"""Stop Ray's tasks without endangering the process that owns them."""

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
    """Stop tasks of one client. The session, not the tasks' owner, requests the cancellation.

    If the owner calls `ray.cancel` while a task's answer arrives, both the caller and the thread that handles the
    answer end the task, and Ray aborts the process with code 1 and no message (2.60, "Tried to complete task that was
    not pending"). A request from another process runs on the thread that handles answers.

    Args:
        ask: Asks the client's session with a timeout in seconds, starting it if needed (`SessionLink.ask`).
        kill_after: Seconds between a gentle stop and a kill.
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
        """Arrange for tasks to end, and return before they do.

        Args:
            refs: The tasks, some of which may have ended.
            gently: Interrupt them first, so that a program's process group can end cleanly, and kill their processes
                later. Otherwise kill them at once.
            done: Set when the stop is no longer needed.
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
        """End the thread. Ray ends the remaining tasks with their owner."""
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
            logger.warning("%d tasks will be stopped later: the session has not answered yet", len(refs))
        except Exception as error:
            # The session is gone, or the connection, in whatever way: no job must go on for that.
            logger.warning("the session cannot stop tasks (%s): stopping %d directly", type(error).__name__, len(refs))
            cancel_tasks(refs, force)


def cancel_tasks(refs: Sequence[Any], force: bool) -> None:
    """Cancel tasks and everything they started. Must not be called by their owner (see `TaskCanceller`)."""
    if ray.is_initialized():
        for ref in refs:
            ray.cancel(ref, force=force, recursive=True)
