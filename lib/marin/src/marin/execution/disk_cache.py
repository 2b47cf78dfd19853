"""Functions with cached results: computed once, loaded from then on.

`disk_cache` keeps results for a day and takes no lock, as older experiments expect. `locked_disk_cache` keeps them
below the prefix; of several concurrent callers, one computes and the others wait.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import pickle
import re
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from marin.execution.artifact import Artifact, ArtifactNotFound, DamagedArtifact
from marin.execution.config.prefix import prefix_or_default
from marin.execution.jobs.remote import function_name
from marin.execution.lease.status_file import LockedFunction, StatusFile, StepAlreadyDone, making_output
from marin.execution.lease.status_words import STATUS_FAILED, STATUS_SUCCESS
from marin.execution.plan.call_identity import Unidentified, bound_call_digest, function_identity
from marin.output_files import ARTIFACT_FILE
from rigging.errors import Denied, InvalidRequest
from rigging.filesystem import local_path, marin_temp_bucket, read_bytes_or_none, write_bytes_atomic
from rigging.filesystem.location import path_in

P = ParamSpec("P")
R = TypeVar("R")

SaveFn = Callable[[Any, str], object]
LoadFn = Callable[[str], Any]

logger = logging.getLogger(__name__)

_HASH_DIGITS = 16
_MISSES_TO_SAY = 3
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_DIGEST_LINE = b"\nsha256:%b\n"
_DIGEST = re.compile(rb"\nsha256:([0-9a-f]{64})\n\Z")

RESULT_FILE = "data.pkl"


class disk_cache(Generic[P, R]):
    """Cache a function's result on disk. Use it as `@disk_cache`, `@disk_cache(...)` or `disk_cache(fn, ...)`.

    A result is valid once the status at its path is SUCCESS. If a computation raises, the next call tries again.
    Concurrent callers may each compute; to let only one compute, use `locked_disk_cache` or
    `disk_cache(distributed_lock(fn), output_path=path)(path)`.

    Args:
        fn: The function.
        output_path: The result's path, the same for all arguments. By default each set of arguments has its own path in
            the storage that is emptied after a day (`marin_temp_bucket(1)`).
        save_fn: `save_fn(value, path)` stores a result. By default results are pickled, so a later call gets back any
            type unchanged.
        load_fn: `load_fn(path)` loads a result.

    Raises:
        InvalidRequest: (from a call) An argument, a value bound to the function, or the result cannot be pickled.
        Denied: (from a call) The cached file on this machine belongs to another user. It is not loaded.

    If a stored result is damaged or missing, the call logs this and computes it again. The damaged file is kept beside
    it.
    """

    #: See `marin.execution.plan.call_identity`.
    wraps_function = True

    def __init__(
        self,
        fn: Callable[P, R] | None = None,
        *,
        output_path: str | None = None,
        save_fn: SaveFn | None = None,
        load_fn: LoadFn | None = None,
    ) -> None:
        self._store = _Store(output_path, save_fn, load_fn, self._temporary_path)
        self._fn = fn
        self._identity = ""
        if fn is not None:
            functools.update_wrapper(self, fn)
            if output_path is None:
                self._identity = _identity_now(fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        fn = self._fn
        if fn is None:
            return cast(R, self._wrapping(*args, **kwargs))
        path, kept = self._store.find(fn, args, kwargs)
        if kept is not None:
            return cast(R, kept.value)
        try:
            value = self._computed(fn, path, args, kwargs)
        except StepAlreadyDone:  # made by the last holder of the function's lock
            return cast(R, self._store.load(fn, path))
        except BaseException:
            StatusFile(path).write_status(STATUS_FAILED)
            raise
        if StatusFile(path).status != STATUS_SUCCESS:
            StatusFile(path).write_status(STATUS_SUCCESS)
        return cast(R, value)

    def _computed(self, fn: Callable[..., Any], path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function and keep the result."""
        if isinstance(fn, LockedFunction):
            # Kept before the lock is given up, or the next holder would find SUCCESS and no result.
            return fn.call_and_keep(lambda value: self._store.save(value, path), *args, **kwargs)
        value = fn(*args, **kwargs)
        self._store.save(value, path)
        return value

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind the function to an instance, so that methods can be cached."""
        return self if instance is None else types.MethodType(self, instance)

    def _temporary_path(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        digest = bound_call_digest(fn, args, kwargs, self._identity)[:_HASH_DIGITS]
        path = marin_temp_bucket(1, f"disk_cache_{digest}")
        return local_path(path) or path

    def _wrapping(self, *args: Any, **kwargs: Any) -> disk_cache[..., Any]:
        if len(args) != 1 or kwargs or not callable(args[0]):
            raise TypeError(
                "disk_cache(...) takes the function to wrap: write @disk_cache(...), or disk_cache(fn, ...)"
            )
        store = self._store
        return disk_cache(args[0], output_path=store.output_path, save_fn=store.save_fn, load_fn=store.load_fn)


@overload
def locked_disk_cache(fn: Callable[P, R]) -> Callable[P, R]: ...


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
        save_fn: Like `disk_cache`; requires load_fn.
        load_fn: Like `disk_cache`; requires save_fn.

    Raises:
        InvalidRequest: (from a call) An argument, a value bound to the function, or the result cannot be pickled; or
            only one of save_fn and load_fn was given.
    """
    if (save_fn is None) != (load_fn is None):
        missing = "save_fn" if save_fn is None else "load_fn"
        raise InvalidRequest(f"disk_cache: {missing} is missing; save_fn and load_fn must be given together")
    store = _Store(output_path, save_fn, load_fn, cache_path)

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def cached(*args: P.args, **kwargs: P.kwargs) -> R:
            path, kept = store.find(function, args, kwargs)
            if kept is not None:
                return cast(R, kept.value)
            try:
                with making_output(path, function_name(function)):
                    value = function(*args, **kwargs)
                    store.save(value, path)
                    return value
            except StepAlreadyDone:  # made by the last holder of the lock
                return cast(R, store.load(function, path))

        return cached

    return wrap if fn is None else wrap(fn)


class DamagedResult(InvalidRequest):
    """A stored result was changed after it was written, or is missing although its status is SUCCESS."""


@dataclass(frozen=True, slots=True)
class _Kept:
    value: Any


class _Misses:
    """Count consecutive calls that look alike, find no result, and have different identities."""

    def __init__(self) -> None:
        self._call = ""
        self._paths: set[str] = set()
        self._is_said = False

    def note_hit(self) -> None:
        self._paths.clear()

    def note(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], path: str) -> None:
        try:
            call = _ADDRESS.sub(
                "", ", ".join([*map(repr, args), *(f"{name}={item!r}" for name, item in kwargs.items())])
            )
        except Exception:  # of an argument's own __repr__
            return
        if call != self._call:
            self._call, self._paths = call, set()
        self._paths.add(path)
        if len(self._paths) == _MISSES_TO_SAY and not self._is_said:
            self._is_said = True
            logger.warning(
                "%s(%s): %d calls in a row have equal text but different identities, so each computes its own result: "
                "pass only arguments that matter, or set output_path",
                function_name(fn), call if len(call) <= 200 else call[:200] + "...", _MISSES_TO_SAY,
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Store:
    """Where and how results are kept.

    Attributes:
        own_path: Return the path of a call's result when no path is given.
    """

    output_path: str | None
    save_fn: SaveFn | None
    load_fn: LoadFn | None
    own_path: Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], str]
    misses: _Misses = field(default_factory=_Misses)

    def find(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, _Kept | None]:
        """Return the path of a call's result, and the result itself if it is stored and undamaged."""
        path = self.own_path(fn, args, kwargs) if self.output_path is None else self.output_path
        if StatusFile(path).status == STATUS_SUCCESS:
            try:
                kept = _Kept(self.load(fn, path))
            except DamagedResult as error:
                self._put_aside(path, error)
            else:
                self.misses.note_hit()
                return path, kept
        if self.output_path is None:
            self.misses.note(fn, args, kwargs, path)
        return path, None

    def _put_aside(self, path: str, error: DamagedResult) -> None:
        """Rename a damaged file, so that the result is computed again."""
        for name in (RESULT_FILE, ARTIFACT_FILE):
            content = read_bytes_or_none(path_in(path, name))
            if content is not None:
                write_bytes_atomic(path_in(path, f"{name}.damaged"), content)
                break
        logger.warning("%s: computed again%s", error, "" if content is None else f"; it is kept as {name}.damaged")
        StatusFile(path).write_status(STATUS_FAILED)

    def save(self, value: Any, path: str) -> None:
        if self.save_fn is None:
            _save(value, path)
            return
        if (local := local_path(path)) is not None:
            os.makedirs(local, exist_ok=True)
        self.save_fn(value, path)

    def load(self, fn: Callable[..., Any], path: str) -> Any:
        """Return the result stored at a path. Raise DamagedResult if it is damaged or missing."""
        if self.load_fn is not None:
            return self.load_fn(path)
        if self.output_path is None:
            _check_own(path_in(path, RESULT_FILE))
        return _load(fn, path)


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
    """Return the identity of a function. Closed-over values enter it as they are at decoration."""
    try:
        return function_identity(fn)
    except Unidentified:  # it holds a lock, a client ...: then it is its name
        return function_name(fn)


def _check_own(file: str) -> None:
    """Refuse a local file of another user: by default all users of a machine share one cache directory."""
    local = local_path(file)
    try:
        owner = os.geteuid() if local is None else os.stat(local).st_uid
    except FileNotFoundError:
        return
    if owner not in (os.geteuid(), 0):
        raise Denied(f"{file} belongs to another user, so it is not loaded; set MARIN_PREFIX, or give output_path")


def _save(value: Any, path: str) -> None:
    import cloudpickle

    try:
        content = cloudpickle.dumps(value)
    except Exception as error:
        raise InvalidRequest(
            f"disk_cache: a result of type {type(value).__name__} cannot be pickled ({error}); give save_fn and load_fn"
        ) from error
    # Behind the end of a pickle, where whoever loads it does not look.
    write_bytes_atomic(
        path_in(path, RESULT_FILE), content + _DIGEST_LINE % hashlib.sha256(content).hexdigest().encode()
    )


def _load(fn: Callable[..., Any], path: str) -> Any:
    file = path_in(path, RESULT_FILE)
    stored = read_bytes_or_none(file)
    if stored is None:  # an earlier release made it
        return _load_artifact(fn, path)
    content, digest = stored[: -len(_DIGEST_LINE % (b"0" * 64))], _DIGEST.search(stored)
    if digest is not None and hashlib.sha256(content).hexdigest().encode() != digest[1]:
        raise DamagedResult(f"{file} is damaged: its content does not match its stored digest")
    try:
        return pickle.loads(stored)  # noqa: S301 - from the user's own storage
    except (AttributeError, ImportError):  # a class that is not there any more
        raise
    except Exception as error:
        if digest is not None:
            raise
        raise DamagedResult(f"{file} is damaged or truncated: {type(error).__name__}: {error}") from error


def _load_artifact(fn: Callable[..., Any], path: str) -> Any:
    try:
        annotation = typing.get_type_hints(fn).get("return")
    except (NameError, TypeError):
        annotation = None  # names that only a type checker knows
    try:
        if annotation is None or isinstance(annotation, TypeVar):
            return Artifact.load(path)
        return Artifact.load(path, annotation)
    except ArtifactNotFound as error:
        raise DamagedResult(f"{path_in(path, RESULT_FILE)} is missing, though the status is SUCCESS") from error
    except DamagedArtifact as error:
        raise DamagedResult(str(error)) from error
