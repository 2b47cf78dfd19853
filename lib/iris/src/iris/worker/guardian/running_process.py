"""Reads, signals and reaps one attempt's process."""

import contextlib
import os
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

from iris.domain.usage import NO_USAGE
from iris.worker.limits.ending import breach_of, final_usage
from iris.worker.limits.groups import Group
from iris.worker.limits.plan import Breach, GroupReading, LimitRequest
from iris.worker.output.pace import OutputPace
from iris.worker.processes import Exit

_READ_BYTES: Final = 64 * 1024
_DRAIN_BYTES: Final = 4 * 1024 * 1024
"""More than a pipe's capacity, so that an escaped writer cannot delay the report of an ended attempt."""
_LOOK: Final = os.WEXITED | os.WNOHANG | os.WNOWAIT


class ProcessListener(Protocol):
    """Receives the events of one process."""

    def on_output(self, is_stderr: bool, data: bytes) -> None:
        """Called with a piece of output, never empty, that may end anywhere in a line."""
        ...

    def on_exit(self, exit: Exit) -> None:
        """Called when the process and all its descendants have exited and all output was passed on."""
        ...


class ProcessOwner(Protocol):
    """The runtime that started a process and handles its descendants."""

    def stop_reading(self, descriptor: int) -> None:
        """Stop watching a pipe and close it."""
        ...

    def pause_reading(self, descriptor: int, seconds: float, resume: Callable[[], bool]) -> None:
        """Stop reading a pipe for some time.

        Args:
            descriptor: Descriptor of the pipe.
            seconds: Duration of the pause.
            resume: Called afterwards; returns whether to read on.
        """
        ...

    def leader_ended(self, process: "CommandProcess") -> None:
        """Called when the process is reaped; the owner calls `finish` once the descendants have exited, too."""
        ...


class CommandProcess:
    """One running command with its process group and its two output pipes."""

    __slots__ = (
        "_cpu_ms", "_exit", "_listener", "_pace", "_peak_bytes", "_runtime", "_stderr", "_stdout", "early_breach",
        "group", "limits", "mark", "owner", "pid", "pid_descriptor",
    )  # fmt: skip

    def __init__(
        self,
        pid: int,
        owner: str,
        mark: int,
        stdout: int | None,
        stderr: int | None,
        listener: ProcessListener,
        runtime: ProcessOwner,
        limits: LimitRequest,
        group: Group | None = None,
        pace: OutputPace | None = None,
    ) -> None:
        self.limits = limits
        self.group = group
        self.early_breach: Breach | None = None  # it was killed before it was held to its limits
        self._cpu_ms = self._peak_bytes = 0
        self.pid = pid
        self.owner = owner
        self.mark = mark
        self.pid_descriptor = os.pidfd_open(pid)
        self._stdout = stdout
        self._stderr = stderr
        self._listener = listener
        self._pace = pace or OutputPace()
        self._runtime = runtime
        self._exit: Exit | None = None

    def terminate(self) -> None:
        """Terminate the whole process group (SIGTERM); suspended processes are resumed so that they receive it."""
        self._signal_group(signal.SIGTERM)
        self._signal_group(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the whole process group (SIGKILL); processes that left the group are killed after the leader exits."""
        self._signal_group(signal.SIGKILL)

    def outputs(self) -> list[tuple[int, Callable[[], None]]]:
        """Return the pipes that are still open, with their readers."""
        if self._exit is not None:
            return []
        pipes = ((self._stdout, self.read_stdout), (self._stderr, self.read_stderr))
        return [(descriptor, read) for descriptor, read in pipes if descriptor is not None]

    def read_stdout(self) -> None:
        if self._stdout is not None and not self._take(self._stdout, False):
            self._stdout = None

    def read_stderr(self) -> None:
        if self._stderr is not None and not self._take(self._stderr, True):
            self._stderr = None

    def _take(self, descriptor: int, is_stderr: bool) -> bool:
        """Read once, within the rate limit; return False if the pipe has ended and is closed."""
        count = self._read(descriptor, is_stderr)
        if count == 0:
            self._runtime.stop_reading(descriptor)
            return False
        pause_s = self._pace.pause_after(count, time.monotonic()) if count else 0.0
        if pause_s:
            # The number may be another pipe's by then.
            self._runtime.pause_reading(
                descriptor, pause_s, lambda: descriptor == (self._stderr if is_stderr else self._stdout)
            )
        return True

    def check_exit(self) -> None:
        """Reap the leader if it has exited, and kill the rest of its group."""
        if self._exit is not None:
            return
        result = os.waitid(os.P_PID, self.pid, _LOOK)
        if result is None:
            return
        # Before reaping: until then the dead leader holds the pid, so the group's number cannot be another's.
        self._signal_group(signal.SIGKILL)
        self._note_use(os.wait4(self.pid, 0)[2])
        if result.si_code == os.CLD_EXITED:
            self._exit = Exit(result.si_status, 0)
        else:
            self._exit = Exit(0, result.si_status)
        self._runtime.leader_ended(self)

    def finish(self, reading: GroupReading | None = None) -> None:
        """Pass on the rest of the pipes' content, without waiting for their end, and notify the listener.

        Args:
            reading: The last reading of its group, or None.
        """
        for descriptor, is_stderr in ((self._stdout, False), (self._stderr, True)):
            if descriptor is not None:
                for _ in range(_DRAIN_BYTES // _READ_BYTES):
                    if not self._read(descriptor, is_stderr):
                        break
                self._runtime.stop_reading(descriptor)
        self._stdout = self._stderr = None
        assert self._exit is not None
        usage = final_usage(NO_USAGE, reading, self._cpu_ms, self._peak_bytes, 0)
        breach = self.early_breach
        if breach is None and reading is not None:
            breach = breach_of(self.limits, reading, usage.memory_peak_bytes)
        self._listener.on_exit(replace(self._exit, usage=usage, breach=breach, has_evidence=reading is not None))

    def _note_use(self, used: resource.struct_rusage) -> None:
        self._cpu_ms = int((used.ru_utime + used.ru_stime) * 1000)
        # Until it became another program it had the memory of this one, which counts as its own.
        if self.group is None and used.ru_maxrss > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss:
            self._peak_bytes = used.ru_maxrss * 1024

    def _read(self, descriptor: int, is_stderr: bool) -> int | None:
        """Pass on the content of a pipe; return the number of bytes, 0 at its end, None if it is empty for now."""
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return None
        if data:
            self._listener.on_output(is_stderr, data)
        return len(data)

    def _signal_group(self, number: signal.Signals) -> None:
        if self._exit is None:
            # Gone already, or everything left of the group runs as another user.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                try:
                    os.killpg(self.pid, number)
                except ProcessLookupError:
                    # A fork of a warm interpreter that has not made its group yet.
                    os.kill(self.pid, number)
