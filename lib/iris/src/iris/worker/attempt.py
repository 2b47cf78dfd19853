"""One attempt on this worker: what was asked, where its life is, and the handles of what runs for it."""

import asyncio
import contextlib
import socket
from typing import Protocol

from iris.domain.states import TaskState
from iris.worker.attempt_machine import Life, Phase
from iris.worker.guardian.log_writer import LogWriter
from iris.worker.logs import AttemptLog
from iris.worker.runtime.running import Exit, Running
from iris.worker.task_env import Ground
from iris.worker.types import Observation, StartRequest


class AttemptListener(Protocol):
    """Hears what an attempt's process does."""

    def took_output(self, attempt: "Attempt", is_stderr: bool, data: bytes) -> None: ...

    def exited(self, attempt: "Attempt", exit: Exit) -> None: ...


class Attempt:
    """One attempt on this worker; the listener of its process."""

    __slots__ = (
        "_listener", "at_ms", "flush_timer", "grace_timer", "ground", "life", "log", "ports", "prepare_task",
        "process", "report_timer", "request", "stderr_tail", "writer",
    )  # fmt: skip

    def __init__(self, request: StartRequest, log_path: str, listener: AttemptListener) -> None:
        self.request = request
        self.writer = LogWriter(log_path)
        self.log = AttemptLog(log_path)
        self.life = Life()
        self.at_ms = 0
        self.ground: Ground | None = None
        self.ports: dict[str, int] = {}
        self.stderr_tail = b""  # kept only where the words of drivers matter
        self.process: Running | None = None
        self.prepare_task: asyncio.Task[None] | None = None
        self.grace_timer: asyncio.TimerHandle | None = None
        self.flush_timer: asyncio.TimerHandle | None = None
        self.report_timer: asyncio.TimerHandle | None = None
        self._listener = listener

    @property
    def attempt_id(self) -> str:
        return self.request.attempt_id

    @property
    def ended(self) -> bool:
        return self.life.phase is Phase.ENDED

    def observation(self) -> Observation:
        life = self.life
        return Observation(
            attempt_id=self.attempt_id,
            state=life.state,
            at_ms=self.at_ms,
            exit_code=life.exit_code,
            exit_signal=life.exit_signal,
            error=life.error,
            failure=life.failure,
            log_size=self.log.size if self.ended else 0,
            pid=life.pid,
        )

    def inventory_observation(self) -> Observation:
        """What a new session begins with: an end is told only once its log is, so until then the attempt goes on."""
        if not self.ended or self.log.acked == self.log.size:
            return self.observation()
        state = TaskState.RUNNING if self.life.pid else TaskState.BUILDING
        return Observation(self.attempt_id, state, self.at_ms, pid=self.life.pid)

    def on_output(self, is_stderr: bool, data: bytes) -> None:
        self._listener.took_output(self, is_stderr, data)

    def on_exit(self, exit: Exit) -> None:
        self._listener.exited(self, exit)

    def cancel_timers(self) -> None:
        for timer in (self.grace_timer, self.flush_timer, self.report_timer):
            if timer is not None:
                timer.cancel()
        self.grace_timer = self.flush_timer = self.report_timer = None


def free_ports(names: tuple[str, ...]) -> dict[str, int]:
    """A free port for each name. All are held until the last is found, so that they differ."""
    ports: dict[str, int] = {}
    with contextlib.ExitStack() as held:
        for name in names:
            probe = held.enter_context(socket.socket())
            probe.bind(("", 0))
            ports[name] = probe.getsockname()[1]
    return ports
