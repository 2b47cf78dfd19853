"""Cache results of functions: compute once, load afterwards.

`disk_cache` keeps results for a day and takes no lock, as older experiments expect. `locked_disk_cache` keeps them
below the prefix; of several concurrent callers, one computes and the others wait.
"""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload

from marin.execution.config.prefix import prefix_or_default
from marin.execution.jobs.remote import function_name
from marin.execution.kept_results import LoadFn, ResultStore, SaveFn
from marin.execution.lease.status_file import LockedFunction, StatusFile, StepAlreadyDone, making_output
from marin.execution.lease.status_words import STATUS_FAILED, STATUS_SUCCESS
from marin.execution.plan.call_identity import Unidentified, bound_call_digest, function_identity
from rigging.errors import InvalidRequest
from rigging.filesystem import local_path, marin_temp_bucket
from rigging.process.coroutines import call_around, is_coroutine_function

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
Rest = ParamSpec("Rest")

_HASH_DIGITS = 16


class disk_cache(Generic[P, R]):
    """Cache a function's result on disk. Use it as `@disk_cache`, `@disk_cache(...)` or `disk_cache(fn, ...)`.

    A result is valid once the status at its path is SUCCESS. If a computation raises, the next call tries again.
    Concurrent callers may each compute; to let only one compute, use `locked_disk_cache` or
    `disk_cache(distributed_lock(fn), output_path=path)(path)`.

    - `fn`: The function.
    - `output_path`: The result's path, the same for all arguments. By default each set of arguments has its own path in
      storage that is emptied after a day (`marin_temp_bucket(1)`).
    - `save_fn(value, path)` stores a result. By default results are pickled, so any type comes back unchanged.
    - `load_fn(path)` loads a result.

    Raises:
        InvalidRequest: (from a call) An argument, a value bound to the function, or the result cannot be pickled.
        Denied: (from a call) The cached file on this machine belongs to another user. It is not loaded.

    A call of an `async def` function returns an awaitable, and the awaited value is stored. If a stored result is
    damaged or missing, the call logs this and computes it again. The damaged file is kept beside the new one.
    """

    #: See `marin.execution.plan.call_identity`.
    wraps_function = True

    _fn: Callable[P, R] | None
    _identity: str
    _store: ResultStore

    # Not __init__, which could not say that `disk_cache(...)` without a function takes one of any types.
    @overload
    def __new__(
        cls,
        fn: Callable[P, R],
        *,
        output_path: str | None = None,
        save_fn: SaveFn | None = None,
        load_fn: LoadFn | None = None,
    ) -> Self: ...

    @overload
    def __new__(
        cls,
        fn: None = None,
        *,
        output_path: str | None = None,
        save_fn: SaveFn | None = None,
        load_fn: LoadFn | None = None,
    ) -> _Decorator: ...

    def __new__(
        cls,
        fn: Callable[P, R] | None = None,
        *,
        output_path: str | None = None,
        save_fn: SaveFn | None = None,
        load_fn: LoadFn | None = None,
    ) -> Any:
        self = super().__new__(cls)
        self._store = ResultStore(output_path, save_fn, load_fn, self._temporary_path)
        self._fn = fn
        self._identity = ""
        if fn is not None:
            functools.update_wrapper(self, fn)
            if output_path is None:
                self._identity = _identity_now(fn)
        return self

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        fn = self._fn
        if fn is None:
            return cast(R, self._wrapping(*args, **kwargs))
        if not is_coroutine_function(fn):
            return cast(R, self._cached(fn, fn, args, kwargs))
        if isinstance(fn, LockedFunction):
            return cast(R, call_around(fn.__wrapped__, lambda plain: self._cached(fn, fn.around(plain), args, kwargs)))
        return cast(R, call_around(fn, lambda plain: self._cached(fn, plain, args, kwargs)))

    def _cached(
        self, fn: Callable[..., Any], compute: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return the stored result of `fn`, or else the result of `compute`, a plain call even for coroutine
        functions."""
        path, kept = self._store.find(fn, args, kwargs)
        if kept is not None:
            return kept.value
        try:
            value = self._computed(compute, path, args, kwargs)
        except StepAlreadyDone:  # made by the last holder of the function's lock
            return self._store.load(fn, path)
        except BaseException:
            StatusFile(path).write_status(STATUS_FAILED)
            raise
        if StatusFile(path).status != STATUS_SUCCESS:
            StatusFile(path).write_status(STATUS_SUCCESS)
        return value

    def _computed(self, fn: Callable[..., Any], path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function and store the result."""
        if isinstance(fn, LockedFunction):
            # Kept before the lock is given up, or the next holder would find SUCCESS and no result.
            return fn.call_and_keep(lambda value: self._store.save(value, path), *args, **kwargs)
        value = fn(*args, **kwargs)
        self._store.save(value, path)
        return value

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...

    @overload
    def __get__(
        self: disk_cache[Concatenate[S, Rest], R], instance: S, owner: type | None = None
    ) -> Callable[Rest, R]: ...

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind the function to an instance, so that methods can be cached."""
        return self if instance is None else types.MethodType(self, instance)

    def _temporary_path(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        digest = bound_call_digest(fn, args, kwargs, self._identity)[:_HASH_DIGITS]
        path = marin_temp_bucket(1, f"disk_cache_{digest}")
        return local_path(path) or path

    def _wrapping(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) != 1 or kwargs or not callable(args[0]):
            raise TypeError(
                "disk_cache(...) takes the function to wrap: write @disk_cache(...), or disk_cache(fn, ...)"
            )
        store = self._store
        return disk_cache(args[0], output_path=store.output_path, save_fn=store.save_fn, load_fn=store.load_fn)


class _Decorator(disk_cache[..., Any]):
    """For type checkers: the type of `disk_cache(...)` without a function."""

    def __call__(self, fn: Callable[P, R]) -> disk_cache[P, R]:
        raise NotImplementedError


@overload
def locked_disk_cache(
    fn: Callable[P, R], *, output_path: str | None = None, save_fn: SaveFn | None = None, load_fn: LoadFn | None = None
) -> Callable[P, R]: ...


@overload
def locked_disk_cache(
    fn: None = None, *, output_path: str | None = None, save_fn: SaveFn | None = None, load_fn: LoadFn | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def locked_disk_cache(
    fn: Callable[P, R] | None = None,
    *,
    output_path: str | None = None,
    save_fn: SaveFn | None = None,
    load_fn: LoadFn | None = None,
) -> Callable[P, R] | Callable[[Callable[P, R]], Callable[P, R]]:
    """Cache a function's result like `disk_cache`, but permanently below the prefix, and compute it only once.

    Concurrent callers, in any process or thread on any machine, wait for the one that computes.

    Args:
        fn: The function.
        output_path: The result's path, the same for all arguments. By default each set of arguments has its own path:
            `{prefix}/cache/{module.function}-{hash of the arguments}`.
        save_fn: As in `disk_cache`; requires load_fn.
        load_fn: As in `disk_cache`; requires save_fn.

    Raises:
        InvalidRequest: (from a call) An argument, a value bound to the function, or the result cannot be pickled; or
            only one of save_fn and load_fn was given.
    """
    if (save_fn is None) != (load_fn is None):
        missing = "save_fn" if save_fn is None else "load_fn"
        raise InvalidRequest(f"disk_cache: {missing} is missing; save_fn and load_fn must be given together")
    store = ResultStore(output_path, save_fn, load_fn, cache_path)

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        def kept_or(compute: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            path, kept = store.find(function, args, kwargs)
            if kept is not None:
                return kept.value
            try:
                with making_output(path, function_name(function)):
                    value = compute(*args, **kwargs)
                    store.save(value, path)
                    return value
            except StepAlreadyDone:  # made by the last holder of the lock
                return store.load(function, path)

        @functools.wraps(function)
        def cached(*args: P.args, **kwargs: P.kwargs) -> R:
            return cast(R, kept_or(function, args, kwargs))

        @functools.wraps(function)
        async def cached_coroutine(*args: P.args, **kwargs: P.kwargs) -> Any:
            return await call_around(function, lambda plain: kept_or(plain, args, kwargs))

        return cast("Callable[P, R]", cached_coroutine) if is_coroutine_function(function) else cached

    return wrap if fn is None else wrap(fn)


def cache_path(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return the default path of a call's result.

    Args:
        fn: The function. Arguments bound to it are part of the path.
        args: Positional arguments of the call.
        kwargs: Keyword arguments of the call.

    Raises:
        InvalidRequest: An argument has no digest that is stable across processes.
    """
    digest = bound_call_digest(fn, args, kwargs)[:_HASH_DIGITS]
    return os.path.join(prefix_or_default(None), "cache", f"{function_name(fn)}-{digest}")


def _identity_now(fn: Callable[..., Any]) -> str:
    """Return the identity of a function, with closed-over values as of decoration."""
    try:
        return function_identity(fn)
    except Unidentified:  # it holds a lock, a client ...: then it is its name
        return function_name(fn)
