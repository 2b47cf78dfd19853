"""Run coroutine functions inside blocking code."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

T = TypeVar("T")


def is_coroutine_function(fn: Any) -> bool:
    """Return whether a function is an `async def`, also inside `functools.partial` and this project's decorators."""
    while isinstance(fn, functools.partial) or getattr(type(fn), "wraps_function", False):
        fn = fn.func if isinstance(fn, functools.partial) else fn.__wrapped__
    call = None if isinstance(fn, type) else getattr(type(fn), "__call__", None)  # noqa: B004 - for its code
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(call)


async def call_around(fn: Callable[..., Any], block: Callable[[Callable[..., Any]], T]) -> T:
    """Run `block(plain)` in a thread, where it may block, and return its result. `plain` runs `fn` on this event loop.

    Each call has its own thread, so calls that wait for a lock cannot starve its holder of threads. `fn` sees the
    context variables that `block` has set.

    Args:
        fn: The coroutine function. It is cancelled when the caller is.
        block: The blocking code around the call.
    """
    import asyncio  # it takes a while, and few need it
    from concurrent.futures import CancelledError

    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    begun: list[Future[Any]] = []
    is_cancelled = False
    guard = threading.Lock()

    def plain(*args: Any, **kwargs: Any) -> Any:
        with guard:
            if is_cancelled:
                raise CancelledError
            future = asyncio.run_coroutine_threadsafe(fn(*args, **kwargs), loop)
            begun.append(future)
        return future.result()

    def work() -> None:
        try:
            value = block(plain)
        except BaseException as error:  # raised by the caller
            end: Callable[[], object] = functools.partial(done.set_exception, error)
        else:
            end = functools.partial(done.set_result, value)
        with contextlib.suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(end)

    done.add_done_callback(lambda ended: ended.exception())  # of a cancelled call nobody may ask for it
    threading.Thread(target=contextvars.copy_context().run, args=(work,), name="call_around", daemon=True).start()
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        with guard:
            is_cancelled = True
            for future in begun:
                future.cancel()
        if begun and not done.done():  # `block` ends now, and not while it waits for a lock
            await asyncio.wait([done])
        raise
