"""The log of the current attempt, as it grows on the worker's disk."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Final

from iris.rpc.logreading import read_from

LOG_VARIABLE: Final = "IRIS_LOG_FILE"
OUTPUT_PIPES_VARIABLE: Final = "IRIS_OUTPUT_PIPES"


class OwnLog:
    """Reads the log of this attempt from its beginning.

    Args:
        path: The log file, in the record format; created with the first byte of output.

    Attributes:
        descriptor: Always None.
    """

    descriptor: int | None = None

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: int | None = None
        self._offset = 0

    def read(self) -> Sequence[tuple[int, bytes]]:
        """Return new output in order: pairs of a stream (1: stdout, 2: stderr) and bytes."""
        if self._file is None:
            with contextlib.suppress(FileNotFoundError):
                self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        if self._file is None:
            return []
        file = self._file
        pieces: list[tuple[int, bytes]] = []
        for record in read_from(
            lambda offset, count: os.pread(file, count, offset), self._offset, os.fstat(file).st_size
        ):
            data = b"iris: " + record.data if record.note else record.data
            pieces.append((2 if record.is_stderr else 1, data if record.partial else data + b"\n"))
            self._offset = record.end
        return pieces

    def close(self) -> None:
        """Stop reading."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def own_log(environ: Mapping[str, str] = os.environ) -> OwnLog | None:
    """Return the log of this process's attempt; None if its output goes elsewhere."""
    path = environ.get(LOG_VARIABLE)
    is_its_log = streams_of_log(environ) == {False, True}
    return OwnLog(path) if path and is_its_log and os.path.isdir(os.path.dirname(path)) else None


def streams_of_log(environ: Mapping[str, str]) -> frozenset[bool]:
    """Return the streams (False: stdout, True: stderr) of this process that go to its attempt's log."""
    pipes = environ.get(OUTPUT_PIPES_VARIABLE, "").split(",")
    return frozenset(is_stderr for is_stderr, number in ((False, 1), (True, 2)) if pipe_name(number) in pipes)


def pipe_name(descriptor: int) -> str:
    """Return a name for the open file; "-" for none."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return "-"
    return f"{found.st_dev}:{found.st_ino}"
