"""What a runtime is told to run, and what it tells of that: the supervisor's side of `ProcessRuntime`."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from rigging.errors import MarinError

NOT_EXECUTABLE: Final = 126
NOT_FOUND: Final = 127
"""What shells exit with for a command that cannot be started, and for one that is not there."""


class StartFailed(MarinError, RuntimeError):
    """The command could not be started; the message names it and where it was looked for.

    Args:
        exit_code: What a shell would have exited with.
    """

    def __init__(self, message: str, exit_code: int = NOT_EXECUTABLE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What to run. `argv[0]` is looked up in the PATH of `env` (never in the worker's), relative to `cwd`."""

    owner: str
    """The attempt this process belongs to, equal to IRIS_ATTEMPT_ID in `env`."""
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    sharer: str = ""
    """Not empty: this is a callable, and a warm interpreter of the sharer's may run it (see `nursery`)."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: by `code`, or by signal number `signal` (then `code` is 0)."""

    code: int
    signal: int

    @property
    def succeeded(self) -> bool:
        return self.code == 0 and self.signal == 0

    def text(self) -> str:
        """For people: "exit code 3", "killed by SIGKILL"."""
        if not self.signal:
            return f"exit code {self.code}"
        try:
            return f"killed by {signal.Signals(self.signal).name}"
        except ValueError:
            return f"killed by signal {self.signal}"


class Listener(Protocol):
    """Hears of one process, on the loop's thread."""

    def on_output(self, is_stderr: bool, data: bytes) -> None:
        """`data` was written; never empty, cut anywhere."""
        ...

    def on_exit(self, exit: Exit) -> None:
        """The process and all its descendants are gone, and all their output was handed over."""
        ...


class Running(Protocol):
    """One command that runs."""

    pid: int

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


class Runtime(Protocol):
    """Starts commands: what the supervisor needs of `ProcessRuntime`."""

    @property
    def live_count(self) -> int: ...

    def start(self, spec: ProcessSpec, listener: Listener) -> Running: ...

    def sweep(self) -> bool: ...
