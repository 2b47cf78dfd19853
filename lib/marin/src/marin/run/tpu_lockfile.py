"""Remove libtpu's lock file, which outlives its process, when a function, a generator or a block ends."""

from __future__ import annotations

import functools
import inspect
import logging
import os
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import ContextDecorator
from typing import Any, Final

from rigging.errors import InvalidRequest

logger = logging.getLogger(__name__)

TPU_LOCKFILE: Final = "/tmp/libtpu_lockfile"


class LockfileRemoval(ContextDecorator):
    """Remove the lock file at the end of a `with` block, or of each call of the decorated function."""

    def __init__(self, lockfile: str = TPU_LOCKFILE) -> None:
        self._lockfile = lockfile

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        try:
            os.unlink(self._lockfile)
        except FileNotFoundError:
            pass
        except OSError as error:
            logger.warning("could not remove %s, so the device may look busy: %s", self._lockfile, error)

    def __call__(self, fn: Callable[..., Any]) -> Any:
        """Decorate any function, also one that is already under `@ray.remote` or `@staticmethod`."""
        if isinstance(fn, type) or hasattr(fn, "__ray_metadata__"):
            name = getattr(fn, "__name__", None) or type(fn).__name__
            raise InvalidRequest(
                f"remove_tpu_lockfile_on_exit: {name} is a class; put it over its methods that use the TPU"
            )
        if isinstance(fn, staticmethod | classmethod):
            return type(fn)(self(fn.__func__))
        if hasattr(fn, "remote") and hasattr(fn.remote, "__wrapped__"):
            return self._under_ray(fn)
        if not callable(fn):
            raise InvalidRequest(
                f"remove_tpu_lockfile_on_exit: {fn!r} is not a function; put it over one (below @property or similar)"
            )
        return self._around(fn)

    def _under_ray(self, remote: Any) -> Any:
        """Return the same remote function with a wrapped body, which runs on the host of the lock file."""
        # Ray has no public way to ask for what a function's decorator was given.
        options = getattr(remote, "_default_options", None)
        if options is None:
            raise InvalidRequest(
                "remove_tpu_lockfile_on_exit: this version of Ray does not reveal a remote function's options; "
                "put it below @ray.remote"
            )
        import ray

        inner = self._around(remote.remote.__wrapped__)
        return ray.remote(**options)(inner) if options else ray.remote(inner)

    def _around(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        # A generator or coroutine has not begun when its function returns.
        if inspect.isasyncgenfunction(fn):
            return self._around_async_generator(fn)
        if inspect.iscoroutinefunction(fn):
            return self._around_coroutine(fn)
        if inspect.isgeneratorfunction(fn):
            return self._around_generator(fn)

        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self:
                return fn(*args, **kwargs)

        return call

    def _around_generator(self, fn: Callable[..., Generator[Any, Any, Any]]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def generate(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            with self:
                return (yield from fn(*args, **kwargs))

        return generate

    def _around_coroutine(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        async def call(*args: Any, **kwargs: Any) -> Any:
            with self:
                return await fn(*args, **kwargs)

        return call

    def _around_async_generator(self, fn: Callable[..., AsyncGenerator[Any, Any]]) -> Callable[..., Any]:
        @functools.wraps(fn)
        async def generate(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            with self:
                inner = fn(*args, **kwargs)
                try:
                    value = await anext(inner)
                    while True:
                        try:
                            sent = yield value
                        except GeneratorExit:
                            raise
                        except BaseException as error:  # `athrow`: it belongs to the generator
                            value = await inner.athrow(error)
                        else:
                            value = await inner.asend(sent)
                except StopAsyncIteration:
                    return
                finally:
                    await inner.aclose()

        return generate
