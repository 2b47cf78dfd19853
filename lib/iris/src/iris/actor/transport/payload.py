"""Pickles arguments, results and exceptions, and splits them into pieces."""

import pickle
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, SupportsIndex

from iris.actor.errors import RemoteError, RemoteTraceback
from iris.actor.transport.wire import Buffer

INLINE_BYTES: Final = 64 * 1024
"""A pickle up to this size is sent with its call or result; a larger one follows in chunks."""
WHOLE_BYTES: Final = 2 * 1024 * 1024
"""A pickle up to this size may also be sent with its message: a result always, arguments within the caller's window."""
WINDOW_BYTES: Final = 16 * 1024 * 1024
"""Arguments larger than INLINE_BYTES that a caller may send without a request for them."""
CHUNK_BYTES: Final = 512 * 1024

_PLAIN: Final = frozenset({int, float, bool, str, bytes, type(None)})

_BUNDLE: Final = 0
"""First byte of a pickle followed by large buffers; a pickle without buffers starts with its protocol's byte."""
_COUNTS: Final = struct.Struct("<BII")
_BUFFER: Final = struct.Struct("<Q?")


class Pickle:
    """An outgoing pickle in immutable pieces, which are joined when the message is built."""

    __slots__ = ("pieces", "size")

    def __init__(self, *pieces: Buffer) -> None:
        self.pieces = pieces
        self.size = sum(map(len, pieces))

    @property
    def whole(self) -> Buffer:
        """Return the whole pickle as one bytes object."""
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)


NOTHING: Final = Pickle(b"")


Dumps = Callable[[object, Callable[[pickle.PickleBuffer], bool]], bytes]
"""Pickles a value; the second argument is pickle's `buffer_callback`."""


def by_cloudpickle(value: object, goes_inside: Callable[[pickle.PickleBuffer], bool]) -> bytes:
    """Pickle with cloudpickle: the default for values that are not plain."""
    import cloudpickle

    data: bytes = cloudpickle.dumps(value, protocol=5, buffer_callback=goes_inside)
    return data


def dump_arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any], dumps: Dumps = by_cloudpickle) -> Pickle:
    """Return the pickled arguments of a call, using `dumps` unless they are plain. Raise pickling errors.

    Args:
        args: Positional arguments.
        kwargs: Keyword arguments.
        dumps: Pickles arguments that are not plain.
    """
    if not kwargs:
        if all(map(_is_small, args)):
            return Pickle(pickle.dumps((args, {}), protocol=5))
        if _PLAIN.issuperset(map(type, args)):
            return _dump((tuple(map(_apart, args)), {}), None)
    return _dump((tuple(map(_apart, args)), {name: _apart(value) for name, value in kwargs.items()}), dumps)


def dump(value: object, dumps: Dumps = by_cloudpickle) -> Pickle:
    """Return a pickled value, using `dumps` unless it is plain. (With cloudpickle, lambdas and `__main__` classes
    work.)
    """
    if _is_small(value):
        return Pickle(pickle.dumps(value, protocol=5))
    return _dump(_apart(value), None if type(value) in _PLAIN else dumps)


def load(data: Buffer) -> Any:
    """Return the unpickled object. Use this only for bytes of the same user's processes, because a pickle runs code."""
    if not data or data[0] != _BUNDLE:
        return pickle.loads(data)  # noqa: S301 - the connection has proved whose it is
    view = memoryview(data)
    _, size, count = _COUNTS.unpack_from(view)
    described = _COUNTS.size + count * _BUFFER.size
    at = described + size
    buffers: list[bytes | bytearray] = []
    for length, writable in _BUFFER.iter_unpack(view[_COUNTS.size : described]):
        buffers.append((bytearray if writable else bytes)(view[at : at + length]))
        at += length
    return pickle.loads(view[described : described + size], buffers=buffers)  # noqa: S301 - as above


def _is_small(value: object) -> bool:
    """Return whether the value is plain and has no out-of-band buffers, so that pickling it is fast."""
    kind = type(value)
    return kind in _PLAIN and (kind is not bytes or len(value) <= INLINE_BYTES)  # type: ignore[arg-type]


class _Apart:
    """Bytes that are pickled out of band."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[type[bytes], tuple[pickle.PickleBuffer]]:
        return bytes, (pickle.PickleBuffer(self._data),)


def _apart(value: object) -> object:
    return _Apart(value) if type(value) is bytes and len(value) > INLINE_BYTES else value


def _dump(value: object, dumps: Dumps | None) -> Pickle:
    buffers: list[Buffer] = []
    described: list[bytes] = []

    def goes_inside(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes <= INLINE_BYTES:
            return True
        # What others may change is copied now.
        buffers.append(raw if type(raw.obj) is bytes else bytes(raw))
        described.append(_BUFFER.pack(raw.nbytes, not raw.readonly))
        return False

    if dumps is None:
        data = pickle.dumps(value, protocol=5, buffer_callback=goes_inside)
    else:
        data = dumps(value, goes_inside)
    if not buffers:
        return Pickle(data)
    # Beside the pickle, as a pickler's own buffer is copied whenever it has to grow.
    return Pickle(b"".join((_COUNTS.pack(_BUNDLE, len(data), len(buffers)), *described, data)), *buffers)


def load_error(data: Buffer, text: str, traceback: str) -> BaseException:
    """Return the exception that a method raised, caused by the actor's traceback; RemoteError if it cannot be restored.

    Args:
        data: The pickled exception; empty when it could not be pickled.
        text: Type and text of the exception.
        traceback: The formatted traceback of the actor's process.
    """
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
    """An outgoing pickle, cut into pieces when it is sent."""

    def __init__(self, call: int, data: Pickle) -> None:
        self.call = call
        self._data = memoryview(data.whole)
        self._sent = 0

    def next(self) -> memoryview:
        """Return the next piece; empty if none is left."""
        piece = self._data[self._sent : self._sent + CHUNK_BYTES]
        self._sent += len(piece)
        return piece

    @property
    def done(self) -> bool:
        return self._sent >= len(self._data)


class Assembly:
    """An incoming pickle."""

    def __init__(self, size: int) -> None:
        self.data = bytearray(size)
        self._got = 0

    def add(self, piece: Buffer) -> bool:
        """Add the next piece. Return True when it is complete. Raise ValueError for more bytes than announced."""
        end = self._got + len(piece)
        if end > len(self.data):
            raise ValueError(f"{end} bytes of {len(self.data)} announced")
        self.data[self._got : end] = piece
        self._got = end
        return end == len(self.data)
