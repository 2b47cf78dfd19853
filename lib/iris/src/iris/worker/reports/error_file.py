"""The error that a failed callable leaves in a file for its worker: see `callable_main.write_error`."""

from typing import Final, NamedTuple

from iris.worker.reports.task_file import read_task_file

_ERROR_BYTES: Final = 8192
_LONGEST_TEXT: Final = 4 * _ERROR_BYTES
EXCEPTION_BYTES: Final = 64 * 1024


class CallableError(NamedTuple):
    """The error as text, and the exception as the task has pickled it; both may be empty."""

    text: str = ""
    exception: bytes = b""


def read_error_file(path: str, owner: int = 0) -> CallableError:
    """Return the content of a task's IRIS_ERROR_FILE; nothing where there is none. `owner` as of `read_task_file`."""
    try:
        found = read_task_file(path, _LONGEST_TEXT + 1 + EXCEPTION_BYTES + 1, owner)
    except OSError:
        return CallableError()
    text, _, exception = found.partition(b"\0")
    return CallableError(
        text[:_ERROR_BYTES].decode(errors="replace").strip(), exception if len(exception) <= EXCEPTION_BYTES else b""
    )
