"""Time and scheduling of a simulation: one clock, one queue, and an asyncio loop for each simulated process.

Everything runs in one thread. Only the seed determines the order of callbacks, so a run can be repeated exactly. A
process may be killed between any two callbacks, as by SIGKILL.
"""

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from typing import Any, Final

from iris.sim.trace import Trace

_MOST_LAST_WORDS: Final = 10_000


# Typed as anything: of the 50 methods of an event loop the code under test uses a dozen.
_Loop: Any = asyncio.AbstractEventLoop


class Crash(BaseException):
    """Raised in a killed process. Only the world catches it."""


class Handle:
    """A callback scheduled for a time, with the interface of asyncio's handles that tasks and libraries use."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "node", "when_s")

    def __init__(
        self,
        node: "Node | None",
        when_s: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> None:
        self.node = node
        self.when_s = when_s
        self.callback = callback
        self.args = args
        self.context = context
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.when_s


class World:
    """The clock and all future events.

    Attributes:
        now: Seconds since the simulation started. steps: Number of callbacks run so far.
        problems: Uncaught errors, e.g. an exception in a callback.
    """

    def __init__(self, trace: Trace) -> None:
        self.now = 0.0
        self.steps = 0
        self.trace = trace
        self.problems: list[str] = []
        self.after_step: Callable[[Node | None], None] | None = None
        self._ready: deque[Handle] = deque()
        self._later: list[tuple[float, int, Handle]] = []
        self._count = 0

    def call_at(self, when_s: float, callback: Callable[..., object], *args: Any) -> Handle:
        """Schedule an event of the world itself, such as the arrival of a message or a fault."""
        return self.put(Handle(None, when_s, callback, args, None))

    def call_in(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Handle:
        return self.call_at(self.now + delay_s, callback, *args)

    def put(self, handle: Handle) -> Handle:
        """Queue a handle at its time. Handles with the same time run in order of queueing."""
        if handle.when_s <= self.now:
            self._ready.append(handle)
        else:
            self._count += 1
            heapq.heappush(self._later, (handle.when_s, self._count, handle))
        return handle

    def run_until(self, end_s: float, is_done: Callable[[], bool] = lambda: False) -> None:
        """Run until no events are left, the clock reaches `end_s`, or `is_done` returns true (called whenever time
        advances).
        """
        while True:
            while self._ready:
                self._run(self._ready.popleft())
            if is_done():
                return
            while self._later and self._later[0][2].is_cancelled:
                heapq.heappop(self._later)
            if not self._later or self._later[0][0] > end_s:
                self.now = max(self.now, end_s)
                return
            self.now = self._later[0][0]
            while self._later and self._later[0][0] <= self.now:
                self._ready.append(heapq.heappop(self._later)[2])

    def put_first(self, handles: Iterable[Handle]) -> None:
        """Queue handles that were due in the past."""
        self._ready.extendleft(reversed(list(handles)))

    def take_ready(self, node: "Node") -> list[Handle]:
        """Remove and return the due handles of a node that is killed."""
        own = [handle for handle in self._ready if handle.node is node]
        self._ready = deque(handle for handle in self._ready if handle.node is not node)
        return own

    def _run(self, handle: Handle) -> None:
        node = handle.node
        if handle.is_cancelled or (node is not None and node.is_dead):
            return
        if node is not None and node.busy_until > self.now:
            node.hold_up(handle)
            return
        self.steps += 1
        if node is None:
            handle.callback(*handle.args)
        else:
            node.run_handle(handle)
        if self.after_step is not None:
            self.after_step(node)


class Node(_Loop):  # type: ignore[misc]
    """One simulated process with its event loop."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.is_dead = False
        self.is_dying = False
        self.busy_until = 0.0
        self.steps = 0
        self.on_death: list[Callable[[], None]] = []
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._last_words: deque[Handle] = deque()
        self._held_up: deque[Handle] = deque()

    def hold_up(self, handle: Handle) -> None:
        """Delay a due callback until the process is no longer busy, e.g. with a slow disk."""
        if not self._held_up:
            self.world.call_at(self.busy_until, self._go_on)
        self._held_up.append(handle)

    def freeze(self, until_s: float) -> None:
        """Run none of its callbacks until a time, as after SIGSTOP."""
        self.busy_until = max(self.busy_until, until_s)

    def thaw(self) -> None:
        """Resume the process now."""
        self.busy_until = min(self.busy_until, self.world.now)
        self._go_on()

    def _go_on(self) -> None:
        if not self.is_dying:
            held_up, self._held_up = self._held_up, deque()
            self.world.put_first(held_up)

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function as code of this process, e.g. to create its parts."""
        asyncio._set_running_loop(self)
        try:
            return function(*args)
        finally:
            asyncio._set_running_loop(None)

    def run_handle(self, handle: Handle) -> None:
        """Run one callback; a Crash in it ends the process."""
        self.steps += 1
        asyncio._set_running_loop(self)
        try:
            if handle.context is None:
                handle.callback(*handle.args)
            else:
                handle.context.run(handle.callback, *handle.args)
        except Crash as crash:
            asyncio._set_running_loop(None)
            self.kill(str(crash))
        except Exception as error:
            self.complain(f"callback failed: {error!r}")
        finally:
            asyncio._set_running_loop(None)

    def kill(self, why: str) -> None:
        """Kill the process at once. Its coroutines are unwound without effect on the world."""
        if self.is_dead or self.is_dying:
            return
        self.world.trace.note(self.world.now, self.name, f"dies: {why}")
        self.is_dying = True
        for callback in self.on_death:
            callback()
        self._last_words.extend(self._held_up)
        self._last_words.extend(self.world.take_ready(self))
        for task in list(self._tasks):
            task.cancel()
        for _ in range(_MOST_LAST_WORDS):
            if not self._last_words:
                break
            handle = self._last_words.popleft()
            if not handle.is_cancelled:
                self.run_handle(handle)
        self.is_dead = True
        self._tasks.clear()

    def complain(self, what: str) -> None:
        """Record an uncaught error of this process."""
        if not self.is_dying:
            self.world.problems.append(f"{self.name}: {what}")

    # ---- what asyncio asks of a loop ----

    def call_soon(self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None) -> Any:
        handle = Handle(
            self, self.world.now, callback, args, contextvars.copy_context() if context is None else context
        )
        if self.is_dying:
            self._last_words.append(handle)
            return handle
        return self.world.put(handle)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        return self.call_at(self.world.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        handle = Handle(self, when, callback, args, contextvars.copy_context() if context is None else context)
        return handle if self.is_dying else self.world.put(handle)

    def time(self) -> float:
        return self.world.now

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name or self.name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._drop_task)
        return task

    def _drop_task(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.pop(task, None)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.is_dead

    def is_closed(self) -> bool:
        return self.is_dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.complain(f"{context.get('message')}: {context.get('exception')!r}")
