"""The output of this process's own job, from its backend, for code inside the job."""

import fcntl
import importlib
import os
import stat
from collections.abc import Sequence
from typing import Protocol

from rigging.errors import InvalidRequest

OUTPUT_ENV = "FRAY_JOB_OUTPUT"
"""Set by backends whose jobs write to a file with a name: its path."""

_STDOUT = 1
_STDERR = 2
_READ_BYTES = 1 << 20


class OwnOutput(Protocol):
    """Read the output of one attempt of one replica, from its beginning.

    Attributes:
        descriptor: A file that receives all output as it is written and survives a kill of this process; None if there
            is none.
    """

    descriptor: int | None

    def read(self) -> Sequence[tuple[int, bytes]]:
        """Return new output in order: pairs of a stream (1, 2, or 0 if they are not distinguished) and bytes."""
        ...

    def close(self) -> None:
        """Stop reading."""
        ...


class OutputInFile:
    """Output in a file.

    Args:
        descriptor: The file, open for reading.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor: int | None = descriptor
        self._file = descriptor
        self._offset = 0

    def read(self) -> Sequence[tuple[int, bytes]]:
        """Return new output, like `OwnOutput.read`."""
        pieces: list[tuple[int, bytes]] = []
        while piece := os.pread(self._file, _READ_BYTES, self._offset):
            self._offset += len(piece)
            pieces.append((0, piece))
        return pieces

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def own_output() -> OwnOutput | None:
    """Return the output of this process's job; None if not available. Only the job's first process may call it.

    Call it only inside a job: elsewhere it cannot tell a job's output from other files.
    """
    if _is_jobs_file(_STDOUT) and _are_same(_STDOUT, _STDERR):
        # A copy: the job may send its stdout elsewhere.
        return OutputInFile(fcntl.fcntl(_STDOUT, fcntl.F_DUPFD_CLOEXEC, 3))
    if "IRIS_JOB_ID" in os.environ:
        # By name, as its clients are: backends load when they are needed.
        made: OwnOutput | None = importlib.import_module("fray.backends.iris.own_output").own_output()
        return made
    return None


def output_in(descriptor: int) -> OwnOutput:
    """Return the output of a job from its beginning, for a process that outlives the job's main process.

    Args:
        descriptor: `OwnOutput.descriptor`, inherited.

    Raises:
        InvalidRequest: The descriptor is not such a file.
    """
    if not _is_jobs_file(descriptor):
        raise InvalidRequest(
            f"descriptor {descriptor} is not the output of a job: it must be an unnamed file or that of {OUTPUT_ENV}"
        )
    return OutputInFile(descriptor)


def _is_jobs_file(descriptor: int) -> bool:
    """Return whether the descriptor is a readable file without a name, like the output of jobs on this machine and on
    Ray, or the one that the backend names."""
    named = os.environ.get(OUTPUT_ENV)
    try:
        found = os.fstat(descriptor)
        is_output = found.st_nlink == 0 or (named is not None and os.path.samestat(found, os.stat(named)))
        is_readable = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and is_output and is_readable


def _are_same(one: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(one, other)
    except OSError:  # closed
        return False
