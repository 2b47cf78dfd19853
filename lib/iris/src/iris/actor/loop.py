"""The one event loop of this process for all actors and their callers, in a thread of its own."""

import asyncio
import contextlib
import gc
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar

_POLLER: Final = "_poll_wrapper"
_SETTLE_S: Final = 0.5

Result = TypeVar("Result")

_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}


def actor_loop() -> asyncio.AbstractEventLoop:
    """The loop of this process, started when there is none. A fork has its own."""
    pid = os.getpid()
    loop = _loops.get(pid)
    if loop is not None:
        return loop
    with _lock:
        if pid not in _loops:
            loop = asyncio.new_event_loop()
            loop.set_exception_handler(_report)
            threading.Thread(target=loop.run_forever, name="iris-actor-loop", daemon=True).start()
            _loops[pid] = loop
        return _loops[pid]


def run(work: Coroutine[Any, Any, Result], timeout: float | None = None) -> Result:
    """Run a coroutine in the loop and wait for it; not to be called from the loop itself."""
    return asyncio.run_coroutine_threadsafe(work, actor_loop()).result(timeout)


async def in_thread(work: Callable[[], Result]) -> Result:
    """What `work()` returns, without holding the loop up.

    Not `asyncio.to_thread`: its threads are gone when the last calls of a process that ends are handed over.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def settle(result: Result | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # there is a result when there is no error

    def run_it() -> None:
        try:
            result = work()
        except BaseException as error:  # belongs to whoever awaits it
            loop.call_soon_threadsafe(settle, None, error)
        else:
            loop.call_soon_threadsafe(settle, result, None)

    threading.Thread(target=run_it, name="iris-actor-work", daemon=True).start()
    return await future


class _InUse:
    """How many connections of grpc.aio are open: its thread runs until the last is closed and collected."""

    def __init__(self) -> None:
        self.count = 0


_in_use = _InUse()


@contextlib.contextmanager
def using_grpc() -> Iterator[None]:
    """For the length of a connection, a watch or a server: a fork would break it, and does not wait for its end."""
    _in_use.count += 1
    try:
        yield
    finally:
        _in_use.count -= 1


def _settle_before_fork() -> None:
    """Let the thread of grpc.aio end before a fork, if nothing is open: with it, no child could use gRPC at all."""
    if os.getpid() not in _loops:
        return
    end = time.monotonic() + (0 if _in_use.count else _SETTLE_S)
    while time.monotonic() < end and any(_POLLER in thread.name for thread in threading.enumerate()):
        gc.collect()
        time.sleep(0.002)
    # The child must not collect what is left of connections: their memory belongs to threads that it does not have.
    gc.freeze()


def _after_fork_in_parent() -> None:
    if os.getpid() in _loops:
        gc.unfreeze()


os.register_at_fork(before=_settle_before_fork, after_in_parent=_after_fork_in_parent)


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # grpc's poller wakes every loop of the process, and all but one find nothing to read.
    if not isinstance(context.get("exception"), BlockingIOError):
        loop.default_exception_handler(context)
