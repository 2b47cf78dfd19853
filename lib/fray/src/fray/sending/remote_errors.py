"""Exceptions sent from the process that raised them to the one that waits."""

import itertools
import pickle
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from fray.errors import JobFailed
from rigging.process.exception_parts import ExceptionParts, put_together, take_apart

__all__ = ["RemoteTraceback", "pack_error", "pickle_error", "unpack_error"]


class RemoteTraceback(Exception):
    """The cause of an exception from another process: its remote traceback, as text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text.rstrip()}\n"""'


@dataclass(frozen=True, slots=True)
class _PackedError:
    pickled: bytes | None
    summary: str
    traceback: str


def pack_error(error: BaseException) -> bytes:
    """Return an exception and its traceback as bytes, whatever it contains."""
    text = "".join(traceback.format_exception(error))
    summary = "".join(traceback.format_exception_only(error)).strip()
    return pickle.dumps(_PackedError(pickle_error(error), summary, text))


def unpack_error(packed: bytes, where: str) -> BaseException:
    """Return the exception, caused by its `RemoteTraceback`.

    An exception that cannot be pickled, or whose class is unknown here, becomes JobFailed: "{where}: {type}: {text}".
    """
    # The bytes are from a process that this client started, or that it was told to trust.
    parts: _PackedError = pickle.loads(packed)  # noqa: S301
    error: BaseException | None = None
    if parts.pickled is not None:
        try:
            error = pickle.loads(parts.pickled)  # noqa: S301
        except Exception:  # a user's class may raise anything when it is unpickled
            error = None
    if not isinstance(error, BaseException):
        error = JobFailed(f"{where}: {parts.summary}")
    error.__cause__ = RemoteTraceback(parts.traceback)
    return error


def pickle_error(error: BaseException, dumps: Callable[[object], bytes] | None = None) -> bytes | None:
    """Pickle an exception so that `pickle.loads` restores it faithfully; None if that is impossible.

    An exception whose `__init__` takes unusual arguments is restored without calling it.

    Args:
        error: The exception.
        dumps: Pickles it; None for cloudpickle's.
    """
    if dumps is None:
        import cloudpickle

        dumps = cloudpickle.dumps
    try:
        pickled = dumps(error)
    except Exception:  # a user's class may raise anything when it is pickled
        return None
    plain = _made_again(pickled)
    if plain is not None and _tells_as(plain, error):
        return pickled

    def is_remade(member: BaseException) -> bool:
        try:
            again = _made_again(dumps(member))
        except Exception:  # as above
            return False
        return again is not None and _tells_as(again, member)

    try:
        by_parts = dumps(_ByParts(take_apart(error, is_remade)))
    except Exception:  # as above
        by_parts = b""
    rebuilt = _made_again(by_parts)
    if rebuilt is not None and _tells_as(rebuilt, error):
        return by_parts
    return None if plain is None else pickled


class _ByParts:
    """Pickled as the parts of an exception, and unpickled as that exception."""

    def __init__(self, parts: ExceptionParts) -> None:
        self._parts = parts

    def __reduce__(self) -> tuple[object, ...]:
        return put_together, tuple(self._parts)


def _made_again(pickled: bytes) -> BaseException | None:
    try:
        again = pickle.loads(pickled)  # noqa: S301 - of our own making
    except Exception:  # a user's class may raise anything when it is unpickled
        return None
    return again if isinstance(again, BaseException) else None


def _tells_as(again: BaseException, error: BaseException) -> bool:
    """Return whether two exceptions look the same to people.

    If a constructor formats its argument and is called again with the formatted text, it succeeds with a different
    text.
    """
    try:
        if type(again).__name__ != type(error).__name__ or str(again) != str(error):
            return False
        if isinstance(error, BaseExceptionGroup) and isinstance(again, BaseExceptionGroup):
            # Not by its repr, which has what its own constructor was called with.
            pairs = itertools.zip_longest(again.exceptions, error.exceptions)
            return all(_tells_as(*pair) for pair in pairs)
        return repr(again) == repr(error)
    except Exception:  # a user's `__str__` may raise anything
        return False
