"""The event loop of this process for all actors and their callers, in a dedicated thread."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from iris.rpc.forks import use_grpc
from rigging.errors import Conflict


class Closing(ABC):
    """A context manager that closes itself at the end of the block."""

    @abstractmethod
    def close(self) -> None:
        """Release the object's resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


Result = TypeVar("Result")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None


def actor_loop() -> asyncio.AbstractEventLoop:
    """Return the loop of this process, starting it if needed. Raise Conflict in a fork of a process that used gRPC."""
    global _loop, _thread
    use_grpc("actors of Iris cannot be used here")
    if _loop is not None:
        return _loop
    with _lock:
        if _loop is None:
            import uvloop  # a sixth of a call's time less than with asyncio's own loop

            loop = uvloop.new_event_loop()
            loop.set_exception_handler(_report)
            _thread = threading.Thread(target=loop.run_forever, name="iris-actor-loop", daemon=True)
            _thread.start()
            _loop = loop
        return _loop


def run(work: Coroutine[Any, Any, Result], timeout: float | None = None) -> Result:
    """Run a coroutine in the loop and wait for it. Raise Conflict in the loop's own thread, where that would
    deadlock.
    """
    try:
        refuse_in_loop("this waits for the connections of actors")
    except Conflict:
        work.close()
        raise
    return asyncio.run_coroutine_threadsafe(work, actor_loop()).result(timeout)


def refuse_in_loop(what: str) -> None:
    """Raise Conflict, starting with `what`, in the loop's thread. Call it before waiting for the loop."""
    if threading.current_thread() is _thread:
        raise Conflict(
            f"{what}, and was called in the one thread that serves all actors and clients of this process, as "
            "`on_change` of an EndpointFollower is: do it in a thread of your own"
        )


async def in_thread(work: Callable[[], Result]) -> Result:
    """Return the result of `work()` without blocking the loop.

    Unlike `asyncio.to_thread`, this still works when an exiting process delivers its last calls.
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
        except BaseException as error:  # raised where it is awaited
            loop.call_soon_threadsafe(settle, None, error)
        else:
            loop.call_soon_threadsafe(settle, result, None)

    threading.Thread(target=run_it, name="iris-actor-work", daemon=True).start()
    return await future


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # grpc's poller wakes every loop of the process, and all but one find nothing to read.
    if not isinstance(context.get("exception"), BlockingIOError):
        loop.default_exception_handler(context)
