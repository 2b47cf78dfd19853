"""Functions whose result is kept on disk: computed once, then loaded."""

from __future__ import annotations

import functools
import os
import pickle
import typing
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast, overload

from marin.execution.artifact import Artifact
from marin.execution.config.prefix import prefix_or_default
from marin.execution.jobs.remote import function_name
from marin.execution.lease.status_file import StatusFile, StepAlreadyDone, step_lock
from marin.execution.lease.status_words import STATUS_FAILED, STATUS_RUNNING, STATUS_SUCCESS
from marin.execution.plan.call_identity import call_digest
from rigging.errors import InvalidRequest
from rigging.filesystem import read_bytes_or_none, write_bytes_atomic
from rigging.filesystem.location import path_in

P = ParamSpec("P")
R = TypeVar("R")

SaveFn = Callable[[Any, str], object]
LoadFn = Callable[[str], Any]

_HASH_DIGITS = 16

RESULT_FILE = "data.pkl"


@overload
def disk_cache(fn: Callable[P, R]) -> Callable[P, R]: ...


@overload
def disk_cache(
    fn: Callable[P, R], *, output_path: str | None = None, save_fn: SaveFn | None = None, load_fn: LoadFn | None = None
) -> Callable[P, R]: ...


@overload
def disk_cache(
    fn: None = None, *, output_path: str | None = None, save_fn: SaveFn | None = None, load_fn: LoadFn | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def disk_cache(
    fn: Callable[P, R] | None = None,
    *,
    output_path: str | None = None,
    save_fn: SaveFn | None = None,
    load_fn: LoadFn | None = None,
) -> Callable[P, R] | Callable[[Callable[P, R]], Callable[P, R]]:
    """Keep a function's result on disk: `@disk_cache`, `@disk_cache(...)` or `disk_cache(fn, ...)`.

    Callers in several processes and threads compute a result once; the others wait for it. A result counts only once
    the status at its path is SUCCESS; a computation that fails raises and is tried again by the next call.

    Args:
        fn: The function.
        output_path: One path for the result, for all arguments. By default each set of arguments has its own:
            `{prefix}/cache/{module.function}-{hash of the arguments}`.
        save_fn: `save_fn(value, path)` stores a result; by default it is pickled, so a later call returns an equal
            value of the same type.
        load_fn: `load_fn(path)` loads it.

    Raises:
        InvalidRequest: (from a call) An argument, or what is bound to the function, or the result cannot be pickled;
            only one of save_fn and load_fn was given.
    """
    if (save_fn is None) != (load_fn is None):
        missing = "save_fn" if save_fn is None else "load_fn"
        raise InvalidRequest(f"disk_cache: {missing} is missing; what one stores, the other must be able to load")

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def cached(*args: P.args, **kwargs: P.kwargs) -> R:
            path = output_path if output_path is not None else cache_path(function, args, kwargs)
            load = load_fn if load_fn is not None else functools.partial(_load, function)
            if StatusFile(path).status == STATUS_SUCCESS:
                return cast(R, load(path))
            try:
                with step_lock(path, function_name(function)) as status:
                    status.write_status(STATUS_RUNNING)
                    try:
                        value = function(*args, **kwargs)
                        (save_fn or _save)(value, path)
                    except BaseException:
                        status.write_status(STATUS_FAILED)
                        raise
                    status.write_status(STATUS_SUCCESS)
                    return value
            except StepAlreadyDone:  # made by the last holder of the lock
                return cast(R, load(path))

        return cached

    return wrap if fn is None else wrap(fn)


def cache_path(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return the default path of a call's result.

    Args:
        fn: The function; arguments bound to it count.
        args: Positional arguments of the call.
        kwargs: Keyword arguments of the call.

    Raises:
        InvalidRequest: An argument has no digest that is the same in every process.
    """
    name = function_name(fn)
    digest = call_digest(fn, args, kwargs)
    return os.path.join(prefix_or_default(None), "cache", f"{name}-{digest[:_HASH_DIGITS]}")


def _save(value: Any, path: str) -> None:
    import cloudpickle

    try:
        content = cloudpickle.dumps(value)
    except Exception as error:
        raise InvalidRequest(
            f"disk_cache: a result of type {type(value).__name__} cannot be pickled ({error}); give save_fn and load_fn"
        ) from error
    write_bytes_atomic(path_in(path, RESULT_FILE), content)


def _load(fn: Callable[..., Any], path: str) -> Any:
    content = read_bytes_or_none(path_in(path, RESULT_FILE))
    if content is None:  # an earlier release made it
        return _load_artifact(fn, path)
    return pickle.loads(content)  # noqa: S301 - from the user's own storage


def _load_artifact(fn: Callable[..., Any], path: str) -> Any:
    try:
        annotation = typing.get_type_hints(fn).get("return")
    except (NameError, TypeError):
        annotation = None  # names that only a type checker knows
    if annotation is None or isinstance(annotation, TypeVar):
        return Artifact.load(path)
    return Artifact.load(path, annotation)
