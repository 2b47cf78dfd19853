"""Call users' functions, including coroutines and functions that fork."""

import contextlib
import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from types import AsyncGeneratorType, CodeType, CoroutineType, GeneratorType
from typing import Any, Final, NoReturn

from rigging.errors import InvalidRequest

_GENERATOR_FLAGS: Final = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR

# A stream's lock may have been held by another thread at the moment of the fork: then it is never given back.
_FAREWELL_SECONDS: Final = 5.0


def call_to_end(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function, await its coroutine if it returns one, and end the children it forked.

    A child forked by `fn` ends when its copy of the function returns or raises, with the exit code of a program. Code
    after the call runs only in the caller's own process.

    Args:
        fn: The function.
        *args: Positional arguments.
        **kwargs: Keyword arguments.

    Raises:
        InvalidRequest: The function returned a generator, none of which has run.
        Exception: Any error of the function.
    """
    process = os.getpid()
    try:
        value = fn(*args, **kwargs)
        kind = type(value)
        if kind is CoroutineType:
            import asyncio  # takes a while, and few need it

            value = asyncio.run(_awaited(value, process))
        elif kind is GeneratorType or kind is AsyncGeneratorType:
            raise InvalidRequest(generator_problem(name_of(fn)))
    except BaseException as error:
        if os.getpid() != process:
            leave_fork(error)
        raise
    if os.getpid() != process:
        leave_fork(None)
    return value


async def _awaited(coroutine: Coroutine[Any, Any, Any], process: int) -> Any:
    # A fork shares the event loop's descriptors with its parent: it must not get as far as the loop's end.
    try:
        value = await coroutine
    except BaseException as error:
        if os.getpid() != process:
            leave_fork(error)
        raise
    if os.getpid() != process:
        leave_fork(None)
    return value


def leave_fork(error: BaseException | None) -> NoReturn:
    """End this forked process like a program that returns or raises `error`, without running its parent's code.

    Wait for its own threads, except daemons. The parent's exit handlers are not called.
    """
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    last_words = threading.Thread(target=_say_farewell, args=(error,), daemon=True)
    last_words.start()
    last_words.join(_FAREWELL_SECONDS)
    os._exit(_exit_code_of(error))


def _exit_code_of(error: BaseException | None) -> int:
    if error is None:
        return 0
    return exit_status(error.code) if isinstance(error, SystemExit) else 1


def _say_farewell(error: BaseException | None) -> None:
    # Streams may be closed or replaced, and an exception's class may refuse to be shown.
    with contextlib.suppress(Exception):
        if isinstance(error, SystemExit):
            if error.code is not None and not isinstance(error.code, int):
                print(error.code, file=sys.stderr)
        elif error is not None:
            sys.excepthook(type(error), error, error.__traceback__)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def exit_status(code: object) -> int:
    """Return the exit status (0 to 255) for `sys.exit(code)`: 0 for None and 0, and never for anything else.

    The system keeps only 8 bits of a number, so a program's `sys.exit(256)` would look like success.
    """
    if code is None:
        return 0
    if not isinstance(code, int):
        return 1
    return code & 0xFF or int(code != 0)


def name_of(fn: Any) -> str:
    """Return the readable name of a function, or of another callable's class."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__qualname__", None) or type(fn).__qualname__


def is_generator_function(fn: Any) -> bool:
    """Return whether calling `fn` runs none of its code, because it is a (sync or async) generator function."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    code = getattr(fn, "__code__", None)
    if code is None and not isinstance(fn, type):
        code = getattr(getattr(type(fn), "__call__", None), "__code__", None)  # noqa: B004 - for its code
    return isinstance(code, CodeType) and bool(code.co_flags & _GENERATOR_FLAGS)


def generator_problem(name: str) -> str:
    """Return why a generator function is refused."""
    return f"{name} is a generator function: calling it runs none of its code; do the work in a function that returns"
