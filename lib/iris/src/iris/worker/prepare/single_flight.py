"""Deduplicates concurrent work with equal keys."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Runs one function per key at a time; further callers with the same key wait for its result.

    Args:
        unwanted_s: How long the function continues after its last caller is cancelled; None to always finish.
    """

    def __init__(self, unwanted_s: float | None = None) -> None:
        self._unwanted_s = unwanted_s
        self._running: dict[str, asyncio.Task[T]] = {}
        self._waiting: Counter[asyncio.Task[T]] = Counter()

    async def run(self, key: str, work: Callable[[], Coroutine[None, None, T]]) -> T:
        """Return the result of `work`. If the caller is cancelled, `work` continues for other callers and to store its
        result.
        """
        while (task := self._running.get(key)) is not None and task.cancelling():
            await asyncio.wait([task])
        if task is None:
            task = asyncio.ensure_future(work())
            self._running[key] = task
            task.add_done_callback(lambda done: self._done(key, done))
        self._waiting[task] += 1
        try:
            return await asyncio.shield(task)
        finally:
            self._waiting[task] -= 1
            if not self._waiting[task]:
                del self._waiting[task]
                if self._unwanted_s is not None:
                    asyncio.get_running_loop().call_later(self._unwanted_s, self._end_unwanted, task)

    def _end_unwanted(self, task: asyncio.Task[T]) -> None:
        if task not in self._waiting:
            task.cancel()  # nothing, where it is done

    async def close(self) -> None:
        """Cancel all running functions and wait for them."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, key: str, task: asyncio.Task[T]) -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # raised to those who still wait
