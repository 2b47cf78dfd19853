"""Programs of local jobs. Each runs in its own process group and writes to a file."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from io import FileIO
from typing import Protocol

KILL_AFTER_SECONDS = 5.0
_TAIL_BYTES = 8192
_TAIL_LINES = 20
_SMALL_BYTES = 64 << 10
_READ_BYTES = 16 << 20
_LIFELINE = os.path.join(os.path.dirname(__file__), "lifeline.py")

# Held while a process is started, so that forks of other threads wait that long: one made in between would keep the
# pipe open by whose end `Popen` learns that its program has begun, and `Popen` would not return before that fork ended.
START_LOCK = threading.RLock()
os.register_at_fork(before=START_LOCK.acquire, after_in_parent=START_LOCK.release, after_in_child=START_LOCK.release)


def with_own_python(path: str | None) -> str:
    """Return a PATH that starts with this interpreter's directory, so that `python` and its installed programs are
    found there.

    Args:
        path: The PATH to append; None for the system's default.
    """
    own = os.path.dirname(sys.executable)
    folders = (os.defpath if path is None else path).split(os.pathsep)
    return os.pathsep.join([own, *(folder for folder in folders if folder != own)])


class OutputFile:
    """A file that takes the stdout and stderr of a job's programs.

    The file is created on first use and has no name, so it disappears even when this process is killed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._file: FileIO | None = None
        self._settled = b""

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

    def open(self) -> int:
        """Return a descriptor for appending. The caller closes it."""
        with self._lock:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="fray-", buffering=0)  # noqa: SIM115 - closed by settle()
                # All who write share one position: each write has to go to the end.
                fcntl.fcntl(self._file, fcntl.F_SETFL, fcntl.fcntl(self._file, fcntl.F_GETFL) | os.O_APPEND)
            return os.dup(self._file.fileno())

    def settle(self) -> None:
        """Declare the output complete. Small outputs are kept in memory and release their descriptor."""
        with self._lock:
            if self._file is not None and self._size() <= _SMALL_BYTES:
                self._settled = self._read_from(0)
                self._file.close()
                self._file = None

    def read(self) -> str:
        """Return all output."""
        return self.read_from(0).decode("utf-8", errors="replace")

    def size(self) -> int:
        """The number of bytes written so far."""
        with self._lock:
            return self._size()

    def read_from(self, offset: int) -> bytes:
        """Return everything after the first `offset` bytes."""
        with self._lock:
            return self._read_from(offset)

    def tail(self, lines: int) -> str:
        """Return the last lines."""
        with self._lock:
            text = self._read_from(max(0, self._size() - _TAIL_BYTES)).decode("utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def _size(self) -> int:
        return len(self._settled) if self._file is None else os.fstat(self._file.fileno()).st_size

    def _read_from(self, offset: int) -> bytes:
        if self._file is None:
            return self._settled[offset:]
        parts = []
        # Not by the file's position, which belongs to those that write.
        while part := os.pread(self._file.fileno(), _READ_BYTES, offset):
            parts.append(part)
            offset += len(part)
        return b"".join(parts)


class Output(Protocol):
    """Takes the stdout and stderr of a program."""

    def open(self) -> int:
        """Return a descriptor for appending. The caller closes it."""
        ...


class Leader(Protocol):
    """The first process of a process group."""

    pid: int

    def await_end(self) -> None:
        """Wait for the process to end. Where possible, keep the ids of the process and its group reserved."""
        ...

    def reap(self) -> int:
        """Return the exit code, or the negative signal number. Raise ChildProcessError if both are unknown."""
        ...


class _Child:
    """A leader that is a child of this process."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self.pid = process.pid
        self._taken = False

    def await_end(self) -> None:
        if not hasattr(os, "waitid"):
            self._process.wait()
            return
        try:
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            self._taken = True

    def reap(self) -> int:
        code = self._process.wait()
        if self._taken:
            raise ChildProcessError(errno.ECHILD, "this process ignores SIGCHLD, or something in it reaps all children")
        return code


class ProcessTree:
    """A program and its process group. All processes of the group have ended when `wait` returns.

    Args:
        leader: The group's leader.
        lifeline: The write end of a pipe. When it closes, for example because this process dies, the group is killed.
    """

    def __init__(self, leader: Leader, lifeline: int | None = None) -> None:
        self._leader = leader
        self._lifeline = lifeline
        self._lock = threading.Lock()
        self._killer: threading.Timer | None = None
        self._gone = False

    @staticmethod
    def start(
        argv: Sequence[str], env: Mapping[str, str], cwd: str | None, output: Output, with_lifeline: bool = False
    ) -> "ProcessTree":
        """Start a program. Raise OSError if it cannot be started.

        Args:
            argv: The program and its arguments.
            env: The complete environment.
            cwd: The working directory; None for the caller's.
            output: The file for its stdout and stderr.
            with_lifeline: Kill the whole group when this process ends, even when it is killed. A program that cannot be
                started then reports that in `output` and exits with 127, instead of raising OSError.
        """
        descriptor = output.open()
        kept: int | None = None
        passed: list[int] = []
        command = list(argv)
        if with_lifeline:
            read, kept = os.pipe()
            passed = [read]
            command = [sys.executable, "-I", "-S", _LIFELINE, str(read), *argv]
        try:
            with START_LOCK:
                process = subprocess.Popen(
                    command,
                    env=env,
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=descriptor,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=passed,
                )
        except BaseException:
            if kept is not None:
                os.close(kept)
            raise
        finally:
            for each in (descriptor, *passed):
                os.close(each)
        return ProcessTree(_Child(process), kept)

    @property
    def group(self) -> int:
        """The id of its process group."""
        return self._leader.pid

    def wait(self) -> int:
        """Wait for the program, kill its remaining children, and return its exit code, or the negative signal number.

        Raise ChildProcessError if the program has ended with an unknown exit code, for example because other code
        reaped it.
        """
        # Not reaped yet, the leader keeps its process group's id from being used again until the group is killed.
        self._leader.await_end()
        with self._lock:
            self._gone = True
            if self._killer is not None:
                self._killer.cancel()
            self._signal(signal.SIGKILL)
            if self._lifeline is not None:
                os.close(self._lifeline)
                self._lifeline = None
        return self._leader.reap()

    def terminate(self, kill_after: float = KILL_AFTER_SECONDS) -> None:
        """Send SIGTERM to the group, and kill it after the given seconds; immediately for 0."""
        with self._lock:
            if self._gone:
                return
            if kill_after <= 0:
                self._signal(signal.SIGKILL)
            elif self._killer is None:
                self._signal(signal.SIGTERM)
                self._killer = threading.Timer(kill_after, self.terminate, (0,))
                self._killer.daemon = True
                self._killer.start()

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._leader.pid, number)
        except (ProcessLookupError, PermissionError):
            # The group is empty, or (macOS) holds only the unreaped leader.
            return


def describe_exit(code: int) -> str:
    """Return an exit code of `ProcessTree.wait` in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"


def describe_failure(what: str, code: int, output: OutputFile) -> str:
    """Return a message about a failed program, with the end of its output.

    Args:
        what: Names the program.
        code: The exit code from `ProcessTree.wait`.
        output: The program's output.
    """
    tail = output.tail(_TAIL_LINES)
    shown = f"; the end of its output:\n{tail}" if tail else "; it wrote nothing"
    return f"{what} ended with {describe_exit(code)}{shown}"
