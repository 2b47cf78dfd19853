"""Arguments, results and exceptions as bytes, and the pieces in which they travel."""

import pickle
from collections.abc import Mapping
from typing import Any, Final

from iris.actor.errors import RemoteError, RemoteTraceback

INLINE_BYTES: Final = 64 * 1024
"""A pickle up to this size goes along with its call or result; a larger one follows in chunks."""
WHOLE_BYTES: Final = 2 * 1024 * 1024
"""One up to this size does too, where there is room: a result always, arguments within the caller's window."""
WINDOW_BYTES: Final = 16 * 1024 * 1024
"""Arguments above INLINE_BYTES that one caller may send without being asked for them."""
CHUNK_BYTES: Final = 512 * 1024

_PLAIN: Final = frozenset({int, float, bool, str, bytes, type(None)})


def dump_arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
    """The pickle of a call's arguments. Raises what pickling raises."""
    return dump((args, dict(kwargs)), plain=not kwargs and _PLAIN.issuperset(map(type, args)))


def dump(value: object, plain: bool | None = None) -> bytes:
    """The pickle of a value, by cloudpickle unless it is plain (lambdas and classes of `__main__` travel too)."""
    if type(value) in _PLAIN if plain is None else plain:
        return pickle.dumps(value, protocol=5)
    import cloudpickle

    data: bytes = cloudpickle.dumps(value, protocol=5)
    return data


def load(data: "bytes | bytearray") -> Any:
    """What `dump` was given. Only for bytes of the same user's processes: a pickle runs code."""
    return pickle.loads(data)  # noqa: S301 - the connection has proved whose it is


def load_error(data: "bytes | bytearray", text: str, traceback: str) -> BaseException:
    """The exception that a method raised, with the actor's traceback as its cause; RemoteError where it cannot be."""
    error: object = None
    why = ""
    if data:
        try:
            error = load(data)
        except Exception as problem:  # whatever the class's own code does when it is unpickled
            why = f" (it cannot be made again here: {type(problem).__name__}: {problem})"
    if not isinstance(error, BaseException):
        error = RemoteError(f"{text}{why}")
    error.__cause__ = RemoteTraceback(traceback)
    return error


class Chunks:
    """A pickle on its way out, cut when it is sent."""

    def __init__(self, call: int, data: "bytes | bytearray") -> None:
        self.call = call
        self._data = memoryview(data)
        self._sent = 0

    def next(self) -> bytes:
        """The next piece; empty when there is none left."""
        piece = bytes(self._data[self._sent : self._sent + CHUNK_BYTES])
        self._sent += len(piece)
        return piece

    @property
    def done(self) -> bool:
        return self._sent >= len(self._data)


class Assembly:
    """A pickle on its way in."""

    def __init__(self, size: int) -> None:
        self.data = bytearray(size)
        self._got = 0

    def add(self, piece: bytes) -> bool:
        """Take the next piece in; True when all is here. Raises ValueError for more than was announced."""
        end = self._got + len(piece)
        if end > len(self.data):
            raise ValueError(f"{end} bytes of {len(self.data)} announced")
        self.data[self._got : end] = piece
        self._got = end
        return end == len(self.data)
