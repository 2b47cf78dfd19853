"""One attempt's process: read, signalled and reaped."""

import contextlib
import os
import signal
from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from iris.worker.processes import Exit

_READ_BYTES: Final = 64 * 1024
_DRAIN_BYTES: Final = 4 * 1024 * 1024
"""More than any pipe holds: a writer that escaped us cannot keep an ended attempt from being reported."""
_LOOK: Final = os.WEXITED | os.WNOHANG | os.WNOWAIT


class ProcessListener(Protocol):
    """Hears of one process."""

    def on_output(self, is_stderr: bool, data: bytes) -> None:
        """`data` was written; never empty, cut anywhere."""
        ...

    def on_exit(self, exit: Exit) -> None:
        """The process and all its descendants are gone, and all their output was handed over."""
        ...


class ProcessOwner(Protocol):
    """The runtime that has started a process and looks after its descendants."""

    def stop_reading(self, descriptor: int) -> None:
        """Stop watching a pipe and close it."""
        ...

    def leader_ended(self, process: "CommandProcess") -> None:
        """The process is reaped; its `finish` is called once its descendants are gone, too."""
        ...


class PipeState(Enum):
    """Result of one read of an output pipe."""

    DATA = 1
    EMPTY = 2
    CLOSED = 3


class CommandProcess:
    """One running command with its process group and its two output pipes."""

    __slots__ = ("_exit", "_listener", "_runtime", "_stderr", "_stdout", "mark", "owner", "pid", "pid_descriptor")

    def __init__(
        self,
        pid: int,
        owner: str,
        mark: int,
        stdout: int,
        stderr: int,
        listener: ProcessListener,
        runtime: ProcessOwner,
    ) -> None:
        self.pid = pid
        self.owner = owner
        self.mark = mark
        self.pid_descriptor = os.pidfd_open(pid)
        self._stdout: int | None = stdout
        self._stderr: int | None = stderr
        self._listener = listener
        self._runtime = runtime
        self._exit: Exit | None = None

    def terminate(self) -> None:
        """Ask the whole process group to end (SIGTERM); what is suspended goes on, or it would not hear of it."""
        self._signal_group(signal.SIGTERM)
        self._signal_group(signal.SIGCONT)

    def kill(self) -> None:
        """End the whole process group (SIGKILL); what left the group dies once the leader is gone."""
        self._signal_group(signal.SIGKILL)

    def outputs(self) -> list[tuple[int, Callable[[], None]]]:
        """The pipes that may bring something yet, and what reads them."""
        if self._exit is not None:
            return []
        pipes = ((self._stdout, self.read_stdout), (self._stderr, self.read_stderr))
        return [(descriptor, read) for descriptor, read in pipes if descriptor is not None]

    def read_stdout(self) -> None:
        if self._stdout is not None and self._read(self._stdout, False) is PipeState.CLOSED:
            self._runtime.stop_reading(self._stdout)
            self._stdout = None

    def read_stderr(self) -> None:
        if self._stderr is not None and self._read(self._stderr, True) is PipeState.CLOSED:
            self._runtime.stop_reading(self._stderr)
            self._stderr = None

    def check_exit(self) -> None:
        """Reap the leader if it has ended, and end what is left of its group."""
        if self._exit is not None:
            return
        result = os.waitid(os.P_PID, self.pid, _LOOK)
        if result is None:
            return
        # Before reaping: until then the dead leader holds the pid, so the group's number cannot be another's.
        self._signal_group(signal.SIGKILL)
        os.waitpid(self.pid, 0)
        if result.si_code == os.CLD_EXITED:
            self._exit = Exit(result.si_status, 0)
        else:
            self._exit = Exit(0, result.si_status)
        self._runtime.leader_ended(self)

    def finish(self) -> None:
        """Hand over what the pipes still hold, without waiting for their end, and tell the listener."""
        for descriptor, is_stderr in ((self._stdout, False), (self._stderr, True)):
            if descriptor is not None:
                for _ in range(_DRAIN_BYTES // _READ_BYTES):
                    if self._read(descriptor, is_stderr) is not PipeState.DATA:
                        break
                self._runtime.stop_reading(descriptor)
        self._stdout = self._stderr = None
        assert self._exit is not None
        self._listener.on_exit(self._exit)

    def _read(self, descriptor: int, is_stderr: bool) -> "PipeState":
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return PipeState.EMPTY
        if not data:
            return PipeState.CLOSED
        self._listener.on_output(is_stderr, data)
        return PipeState.DATA

    def _signal_group(self, number: signal.Signals) -> None:
        if self._exit is None:
            # Gone already, or everything left of the group runs as another user.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                try:
                    os.killpg(self.pid, number)
                except ProcessLookupError:
                    # A fork of a warm interpreter that has not made its group yet.
                    os.kill(self.pid, number)
