"""Coroutines that begin at once."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Prompt:
    """Runs a coroutine as a task does, but `begin` runs it to its first wait: a task begins in the loop's next round.

    Python 3.12 has tasks of this kind (`asyncio.eager_task_factory`). For coroutines that do not ask for their task.

    Args:
        on_end: Told of the end, and of the error if there was one; not after `cancel`.
    """

    def __init__(self, work: Coroutine[Any, Any, object], on_end: Callable[[BaseException | None], object]) -> None:
        self._work = work
        self._on_end = on_end
        self._cancelled = False

    def begin(self) -> None:
        """Run it until it waits for something."""
        self._step(None)

    def cancel(self) -> None:
        """Raise CancelledError in it where it waits."""
        self._cancelled = True
        try:
            self._work.throw(asyncio.CancelledError())
        except (StopIteration, asyncio.CancelledError):
            return
        self._work.close()  # it waits again, but nobody for it

    def _step(self, _: "asyncio.Future[Any] | None") -> None:
        if self._cancelled:
            return
        try:
            waits_for = self._work.send(None)
        except StopIteration:
            self._on_end(None)
        except BaseException as error:  # belongs to whoever listens
            self._on_end(error)
        else:
            waits_for.add_done_callback(self._step)
