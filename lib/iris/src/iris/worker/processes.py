"""The supervisor's side of a `Runtime`: specs of commands, and the events of their processes."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from iris.domain.usage import Usage
from iris.worker.isolation.plan import IsolationMode, Mount
from iris.worker.limits.plan import NO_LIMITS, Breach, LimitRequest
from iris.worker.users.identity import TaskIdentity
from rigging.errors import MarinError

NOT_EXECUTABLE: Final = 126
NOT_FOUND: Final = 127
"""Exit codes of shells for a command that cannot be started, and for one that does not exist."""


class StartFailure(StrEnum):
    """Why a command did not start."""

    COMMAND = "command"
    """The program does not exist, or cannot be executed."""
    HOST = "host"
    """The host has no memory, processes or descriptors left."""
    FENCED = "fenced"
    """The last contact with the controller is too old: the task may have been restarted elsewhere."""
    STOPPED = "stopped"
    """The command was stopped while it was queued."""


class StartFailed(MarinError, RuntimeError):
    """The command could not be started; the message names the command and the searched directories.

    Args:
        exit_code: The exit code of a shell in this case.
    """

    def __init__(self, message: str, exit_code: int = NOT_EXECUTABLE, why: StartFailure = StartFailure.COMMAND) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.why = why


@dataclass(frozen=True, slots=True, eq=False)
class CommonSpec:
    """The common part of many commands, which a worker sends to a guardian once; fields as in `ProcessSpec`."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    sharer: str = ""
    log_limit: int = 0
    tail_bytes: int = 0
    fence_ms: int = 0
    note: Mapping[str, Any] = field(default_factory=dict)
    limits: LimitRequest = NO_LIMITS
    run_as: TaskIdentity | None = None


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """A command to run inside a running attempt: with its directory, files, variables, user and control groups. It ends
    with the attempt, and with the worker process.

    Args:
        owner: The command's name.
        argv: The command. For an attempt in a container: the engine's command line that runs it there.
        streams: Paths of its stdin, stdout and stderr, or of one terminal.
        env: Variables in addition to the attempt's.
    """

    owner: str
    attempt: str
    argv: tuple[str, ...]
    streams: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One command to run. `argv[0]` is looked up in the PATH of `env` (never in the worker's), relative to `cwd`."""

    owner: str
    """The attempt that this process belongs to, equal to IRIS_ATTEMPT_ID in `env`."""
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    sharer: str = ""
    """If not empty: the command runs a callable, and this sharer's warm interpreters may run it (see `warm_pool`)."""
    log: str = ""
    """The file for the output, as log records; empty to keep only the tail."""
    tail_bytes: int = 0
    """Number of last bytes of its stderr (without a log: of all output) to return with its exit."""
    fence_ms: int = 0
    """If not 0: maximum time since the last contact with the controller. Then the process is killed, or not started."""
    dies_with_worker: bool = False
    """Whether the command is a tool of this worker process and ends with it. A tool may write to shared files."""
    note: Mapping[str, Any] = field(default_factory=dict)
    """State for the next worker process, in JSON's types."""
    mounts: tuple[Mount, ...] = ()
    """Its mounts over shared directories; see `isolation.plan`."""
    log_limit: int = 0
    """Maximum size of the log on the disk at a time; 0 for the default."""
    limits: LimitRequest = NO_LIMITS
    """Limits of the process."""
    run_as: TaskIdentity | None = None
    """Its identity; None for the guardian's."""
    is_contained: bool = False
    """Whether the command is the program of a container engine: the engine limits the attempt's processes."""
    join: JoinSpec | None = None
    """The attempt in which it runs, and its streams; None for an attempt or a tool."""
    common: CommonSpec | None = None
    """The common part: `env` and `note` are added to these, and its other fields override those of the spec."""

    def whole(self) -> "ProcessSpec":
        """Return the spec with `common` merged into it."""
        common = self.common
        if common is None:
            return self
        return ProcessSpec(
            owner=self.owner,
            argv=common.argv,
            env={**common.env, **self.env},
            cwd=self.cwd,
            sharer=common.sharer,
            log=self.log,
            tail_bytes=common.tail_bytes,
            fence_ms=common.fence_ms,
            dies_with_worker=self.dies_with_worker,
            note={**common.note, **self.note},
            mounts=self.mounts,
            log_limit=common.log_limit,
            limits=common.limits,
            run_as=common.run_as,
        )


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a process, with exit code `code`, or with signal number `signal` (then `code` is 0)."""

    code: int
    signal: int
    tail: bytes = b""
    lost: str = ""
    """How much output is missing from the log, and why; empty if none is."""
    fenced: str = ""
    """Why the fence killed the process; empty if it did not."""
    at_ms: int = 0
    """Unix time in ms; 0 for now."""
    unmarked: str = ""
    """The part of `lost` that the log does not mention."""
    usage: Usage | None = None
    """The total usage; None if it was not measured."""
    breach: Breach | None = None
    """The limit that the process reached; None if none is known."""
    has_evidence: bool = False
    """Whether the process had its own control groups, which count the kernel's kills and refusals."""

    @property
    def succeeded(self) -> bool:
        return self.code == 0 and self.signal == 0

    def text(self) -> str:
        """Return a readable text: "exit code 3", "killed by SIGKILL"."""
        if not self.signal:
            return f"exit code {self.code}"
        try:
            return f"killed by {signal.Signals(self.signal).name}"
        except ValueError:
            return f"killed by signal {self.signal}"


class Listener(Protocol):
    """Receives the events of one process, on the loop's thread: `on_started` or `on_refused`, and after the former
    `on_exit`.
    """

    def on_started(self, pid: int) -> None: ...

    def on_refused(self, error: StartFailed) -> None:
        """Called if the process was not started and never will be."""
        ...

    def on_log(self, size: int) -> None:
        """Called when the log has grown to `size` bytes."""
        ...

    def on_usage(self, usage: Usage) -> None:
        """Called with the process's usage, and once more before its end."""
        ...

    def on_exit(self, exit: Exit) -> None:
        """Called when the process and all its descendants have exited and all their output is in the log."""
        ...


class RunningCommand(Protocol):
    """One command passed to the runtime."""

    def terminate(self, grace_ms: int, note: Mapping[str, Any] | None = None) -> None:
        """Send SIGTERM now and SIGKILL later to the process group; a queued command never starts.

        Args:
            grace_ms: Time between the two signals.
            note: Replaces the note of the command's spec.
        """
        ...


@dataclass(frozen=True, slots=True)
class InheritedAttempt:
    """An attempt of an earlier worker process that the current one should adopt."""

    owner: str
    pid: int
    """0 before the start."""
    log: str
    log_size: int
    at_ms: int
    note: Mapping[str, Any]


class Runtime(Protocol):
    """Starts commands: the supervisor's view of the guardian."""

    @property
    def live_count(self) -> int:
        """The number of commands that have not ended."""
        ...

    @property
    def isolation(self) -> IsolationMode:
        """The isolation between tasks."""
        ...

    @property
    def most_live(self) -> int:
        """The maximum number of commands at a time."""
        ...

    def start(self, spec: ProcessSpec, listener: Listener) -> RunningCommand:
        """Run `spec` as leader of its own session."""
        ...

    def held(self) -> list[InheritedAttempt]:
        """Return the attempts that existed when this worker process started."""
        ...

    def take_up(self, owner: str, listener: Listener) -> RunningCommand:
        """Listen to one of the attempts of `held`; its past events are delivered at once."""
        ...

    def trouble(self) -> str:
        """Return why nothing can be started at present; empty if no reason is known."""
        ...

    def contact(self, sent_ms: int) -> None:
        """Record that the controller acknowledged a heartbeat sent at this time (`guardian.protocol.boot_ms`)."""
        ...

    def forget(self, owner: str) -> None:
        """Remove an attempt's log and state, because its end has been reported."""
        ...
