"""Exceptions on their way from the process that raised them to the one that waits."""

import pickle
import traceback
from dataclasses import dataclass

from fray.errors import JobFailed

__all__ = ["RemoteTraceback", "pack_error", "unpack_error"]


class RemoteTraceback(Exception):
    """The cause of an exception that was raised in another process: the traceback there, as text."""

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
    """Make bytes of an exception and its traceback, whatever it holds."""
    text = "".join(traceback.format_exception(error))
    summary = "".join(traceback.format_exception_only(error)).strip()
    return pickle.dumps(_PackedError(_pickled(error), summary, text))


def unpack_error(packed: bytes, where: str) -> BaseException:
    """Make the exception again, caused by its `RemoteTraceback`.

    One that cannot travel, or whose class is not known here, becomes JobFailed: "{where}: {type}: {text}".
    """
    # The bytes are from a process that this client started, or that it was told to trust.
    parts: _PackedError = pickle.loads(packed)  # noqa: S301
    error: BaseException | None = None
    if parts.pickled is not None:
        try:
            error = pickle.loads(parts.pickled)  # noqa: S301
        except Exception:  # whatever a stranger's class does when it is made again
            error = None
    if not isinstance(error, BaseException):
        error = JobFailed(f"{where}: {parts.summary}")
    error.__cause__ = RemoteTraceback(parts.traceback)
    return error


def _pickled(error: BaseException) -> bytes | None:
    import cloudpickle

    try:
        pickled: bytes = cloudpickle.dumps(error)
        # Many exceptions pickle well and cannot be made again, as their constructor takes other arguments.
        again = pickle.loads(pickled)  # noqa: S301
    except Exception:  # whatever a stranger's class does when it is pickled
        return None
    return pickled if isinstance(again, BaseException) else None
