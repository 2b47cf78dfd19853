"""Pack return values of callables as bytes for other processes.

A packed value is a line and a pickle:

    3.12\\n<pickle>                    the version of Python, because classes may be sent as bytecode
    3.12 stored <sha256> <url>\\n     a large one, whose pickle is a file in the temporary prefix
    ! <reason>\\n                     there is a value, but it is not available

`iris.worker.callable_main` writes the same format where this module is not installed.
"""

import contextlib
import sys
from types import ModuleType
from typing import Any, Final

from rigging.errors import MarinError, NotFound
from rigging.process.exception_parts import title_of

__all__ = [
    "INLINE_BYTES",
    "LARGEST_BYTES",
    "NOT_RETURNED",
    "ResultUnavailable",
    "is_stored",
    "pack_problem",
    "pack_result",
    "remove_stored_file",
    "store_pieces",
    "unpack_result",
]

INLINE_BYTES: Final = 16 * 1024 * 1024
"""Pickles up to this size use the backend's own channel, larger ones go to storage."""
LARGEST_BYTES: Final = 1024 * 1024 * 1024
"""Larger pickles are not stored: many functions return values that no caller uses."""
STORED_DAYS: Final = 7

NOT_RETURNED: Final = "it ended by sys.exit(0), before its function returned"
"""The reason why a successful job has no value."""

_PYTHON: Final = b"%d.%d" % sys.version_info[:2]
_PREFIX: Final = "job-results"
_MEGABYTE: Final = 1024 * 1024
_PROBLEM_BYTES: Final = 4096


class ResultUnavailable(NotFound):
    """The callable returned, but its value is not available. The message says why."""


class _Pieces:
    """An in-memory file of bounded size."""

    def __init__(self, limit: int) -> None:
        self.pieces: list[bytes] = []
        self.size = 0
        self._limit = limit

    def write(self, data: bytes | memoryview) -> int:
        size = memoryview(data).nbytes
        self.size += size
        if self.size > self._limit:
            raise OverflowError(
                f"it takes more than {self._limit // _MEGABYTE} MiB; write it to a file and return its path"
            )
        self.pieces.append(bytes(data))
        return size


def pack_result(
    value: Any,
    pickler: ModuleType | None = None,
    *,
    inline_bytes: int = INLINE_BYTES,
    largest_bytes: int = LARGEST_BYTES,
) -> bytes:
    """Pack a value. A value that cannot be pickled becomes the reason, which `unpack_result` raises.

    Args:
        value: The callable's return value.
        pickler: A copy of cloudpickle; None for cloudpickle itself.
        inline_bytes: A larger pickle is stored in a file in the temporary prefix.
        largest_bytes: A larger pickle is not kept.
    """
    import pickle

    if pickler is None:
        import cloudpickle

        pickler = cloudpickle
    file = _Pieces(largest_bytes)
    try:
        pickler.CloudPickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
        if file.size > inline_bytes:
            return store_pieces(file.pieces)
    except Exception as error:  # a user's class may raise anything when it is pickled, and so may a storage library
        return pack_problem(f"a value of type {type(value).__name__} cannot be sent: {title_of(error)}")
    return b"".join((_PYTHON, b"\n", *file.pieces))


def pack_problem(reason: str) -> bytes:
    """Pack the reason why a value is not available."""
    return b"! " + " ".join(reason.split()).encode(errors="replace")[:_PROBLEM_BYTES] + b"\n"


def store_pieces(pieces: list[bytes]) -> bytes:
    """Store a pickle in a new file in the temporary prefix, and return the packed value that refers to it.

    Errors of the storage propagate.

    Args:
        pieces: The pickle, in order.
    """
    # Most values are small, and these take a while.
    import hashlib
    import uuid

    from rigging.filesystem import marin_temp_bucket, open_url

    url = f"{marin_temp_bucket(STORED_DAYS, _PREFIX)}/{uuid.uuid4().hex}.pickle"
    digest = hashlib.sha256()
    with open_url(url, "wb") as file:
        for piece in pieces:
            digest.update(piece)
            file.write(piece)
    return b"%s stored %s %s\n" % (_PYTHON, digest.hexdigest().encode(), url.encode())


def unpack_result(packed: bytes, what: str) -> Any:
    """Return the value given to `pack_result`. Only use it for bytes that a job of the same user has packed.

    Args:
        packed: The packed value.
        what: Names the job in errors.

    Raises:
        ResultUnavailable: The value could not be pickled, its file is gone, or it cannot be unpickled here.
    """
    import pickle

    line, _, pickled = packed.partition(b"\n")
    if line.startswith(b"!"):
        raise ResultUnavailable(f"{what} has no result: {line[1:].decode(errors='replace').strip()}")
    python, _, stored = line.partition(b" ")
    if python != _PYTHON:
        raise ResultUnavailable(
            f"the result of {what} was pickled by Python {python[:20].decode(errors='replace')}, "
            f"and this is Python {_PYTHON.decode()}"
        )
    if stored:
        pickled = _fetch(stored.decode(errors="replace"), what)
    try:
        return pickle.loads(pickled)  # noqa: S301 - see above
    except Exception as error:  # whatever a class does when it is made again
        raise ResultUnavailable(f"the result of {what} cannot be unpickled here: {title_of(error)}") from error


def _fetch(stored: str, what: str) -> bytes:
    import hashlib

    from rigging.filesystem import open_url

    _, _, place = stored.partition(" ")
    digest, _, url = place.partition(" ")
    try:
        with open_url(url, "rb") as file:
            data: bytes = file.read()
    except (OSError, MarinError) as error:
        raise ResultUnavailable(
            f"the result of {what} cannot be read from {url}: {title_of(error)}; "
            f"results above {INLINE_BYTES // _MEGABYTE} MiB are kept there for {STORED_DAYS} days"
        ) from error
    # The file may be anybody's by now: it is unpickled only when it is the one that the job wrote.
    if hashlib.sha256(data).hexdigest() != digest:
        raise ResultUnavailable(f"the result of {what} differs from the file that its job wrote to {url}")
    return data


def is_stored(packed: bytes) -> bool:
    """Return whether the value's pickle is a file in the temporary prefix."""
    return b" stored " in packed[:32].partition(b"\n")[0] and not packed.startswith(b"!")


def remove_stored_file(packed: bytes) -> None:
    """Remove the file of a large value, except in object stores, where temporary files expire."""
    line = packed.partition(b"\n")[0]
    if is_stored(packed):
        from rigging.filesystem import url_to_fs

        url = line.decode(errors="replace").split(" ", 3)[3]
        if url.startswith(("/", "file:")):
            with contextlib.suppress(OSError):
                fs, path = url_to_fs(url)
                fs.rm_file(path)
