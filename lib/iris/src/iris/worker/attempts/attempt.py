"""One attempt on this worker: the request, its state, and the handles of its process."""

import asyncio
from dataclasses import replace
from typing import Any, Protocol

from iris.domain.resources import Resources
from iris.domain.runtime import TaskRuntime
from iris.domain.states import TaskState
from iris.domain.usage import NO_USAGE, Usage
from iris.worker.attempts.machine import AttemptPhase, AttemptState, StopAsked
from iris.worker.limits.plan import LimitRequest
from iris.worker.prepare.task_env import PreparedEnvironment
from iris.worker.processes import Exit, InheritedAttempt, ProcessSpec, RunningCommand, StartFailed
from iris.worker.reports.logs import AttemptLog
from iris.worker.types import NO_RESULT, Gang, Launch, Observation, StartRequest
from iris.worker.watch.rules import NOT_WATCHED, WatchRules


class AttemptListener(Protocol):
    """Receives the events of an attempt's process."""

    def started(self, attempt: "Attempt", pid: int) -> None: ...

    def refused(self, attempt: "Attempt", error: StartFailed) -> None: ...

    def log_grew(self, attempt: "Attempt", size: int) -> None: ...

    def used(self, attempt: "Attempt") -> None: ...

    def exited(self, attempt: "Attempt", exit: Exit) -> None: ...


class Attempt:
    """One attempt on this worker. Listens to the events of its process.

    Args:
        request: The controller's request.
        log_path: Its log file.
        listener: Receives the events of its process.
        room: The uid that owns the attempt's room, or 0 (see `rooms`).
    """

    __slots__ = (
        "_listener", "at_ms", "chips", "exception", "is_prefilled", "kill_at_ms", "kills_before", "log",
        "log_path", "places", "ports",
        "prepare_task", "prepared", "process", "progress", "report_timer", "request", "result", "room", "slot",
        "spec", "started_at_ms", "state", "stop_timer", "usage", "waits_for",
    )  # fmt: skip

    def __init__(self, request: StartRequest, log_path: str, listener: AttemptListener, room: int | str = 0) -> None:
        self.room = room
        self.request = request
        self.log_path = log_path
        self.log = AttemptLog(log_path)
        self.state = AttemptState()
        self.usage = NO_USAGE
        self.at_ms = self.started_at_ms = 0
        self.is_prefilled = False
        self.exception = b""  # of a callable that failed
        self.result = NO_RESULT  # of one that succeeded
        self.prepared: PreparedEnvironment | None = None
        self.ports: dict[str, int] = {}
        self.chips: tuple[str, ...] = ()  # names of its accelerators
        self.waits_for = ""  # on this worker, in words
        self.slot = ""  # where its directories are
        self.progress = ""  # the file by which it reports progress
        self.places: tuple[str, ...] = ()  # whose size is its use of the disk
        self.process: RunningCommand | None = None
        self.spec: ProcessSpec | None = None  # made before its turn has come
        self.prepare_task: asyncio.Task[None] | None = None
        self.report_timer: asyncio.TimerHandle | None = None
        self.stop_timer: asyncio.TimerHandle | None = None
        self.kill_at_ms = 0  # once it was asked to stop
        self.kills_before = 0  # the kernel's count when its container was made
        self._listener = listener

    @property
    def attempt_id(self) -> str:
        return self.request.attempt_id

    @property
    def is_member(self) -> bool:
        """Whether the attempt is a gang's member."""
        return self.request.gang is not None

    @property
    def ended(self) -> bool:
        return self.state.phase is AttemptPhase.ENDED

    def observation(self) -> Observation:
        reached = self.state
        state = reached.task_state
        if state is TaskState.ASSIGNED and not self.is_prefilled:
            state = TaskState.BUILDING  # its turn has come: it has a place here
        return Observation(
            attempt_id=self.attempt_id,
            state=state,
            at_ms=self.at_ms,
            exit_code=reached.exit_code,
            exit_signal=reached.exit_signal,
            error=reached.error,
            failure=reached.failure,
            log_size=self.log.size if self.ended else 0,
            pid=reached.pid,
            started_at_ms=self.started_at_ms,
            usage=self.usage if self.ended and self.usage != NO_USAGE else None,
            exception=self.exception if state is TaskState.FAILED else b"",
            result=self.result if state is TaskState.SUCCEEDED else NO_RESULT,
            waits_for=self.waits_for if state is TaskState.BUILDING else "",
        )

    def inventory_observation(self) -> Observation:
        """Return the attempt's observation for a new session: RUNNING until its log is complete."""
        if not self.ended or self.log.acked == self.log.size:
            return self.observation()
        state = TaskState.RUNNING if self.state.pid else TaskState.BUILDING
        return Observation(self.attempt_id, state, self.at_ms, pid=self.state.pid, started_at_ms=self.started_at_ms)

    def on_started(self, pid: int) -> None:
        self._listener.started(self, pid)

    def on_refused(self, error: StartFailed) -> None:
        self._listener.refused(self, error)

    def on_log(self, size: int) -> None:
        self._listener.log_grew(self, size)

    def on_usage(self, usage: Usage) -> None:
        self.usage = self.usage.later(usage)
        self._listener.used(self)

    def on_exit(self, exit: Exit) -> None:
        self._listener.exited(self, exit)

    def cancel_timers(self) -> None:
        for timer in (self.report_timer, self.stop_timer):
            if timer is not None:
                timer.cancel()

    def note(self) -> dict[str, Any]:
        """Return the state that the next worker process needs to adopt the attempt: see `adopted`."""
        launch = self.request.launch
        note: dict[str, Any] = {
            "task": self.request.task_id,
            "index": self.request.task_index,
            "job": launch.job_id,
            "bundle": launch.bundle_digest,
            "replicas": launch.replicas,
            "accelerator": launch.has_accelerator,
            "disk": launch.resources.disk_bytes,
        }
        if launch.grace_ms:
            note["grace"] = launch.grace_ms
        if launch.runtime.image:
            note["image"] = launch.runtime.image
            note["memory"] = launch.limits.memory_bytes
            note["kills"] = self.kills_before
        if self.is_member:
            note["member"] = True
        if self.chips:
            note["chips"] = self.chips
        if self.room:
            note["uid"] = self.room
        if self.slot:
            note["slot"] = self.slot
        if self.places:
            note["places"] = self.places
        if launch.watch.is_on:
            note["watch"] = launch.watch.to_note()
            note["progress"] = self.progress
        if self.state.unhealthy:
            note["unhealthy"] = self.state.unhealthy
        stop = self.state.stop
        if stop is not None:
            note["stop"] = [stop.reason, stop.grace_ms, stop.leaving, stop.preempted, stop.notice]
        return note


def adopted(held: InheritedAttempt, listener: AttemptListener) -> Attempt:
    """Return an attempt that an earlier worker process started on this host."""
    note = held.note
    launch = Launch(
        job_id=str(note.get("job", "")),
        bundle_digest=str(note.get("bundle", "")),
        replicas=int(note.get("replicas", 1)),
        has_accelerator=bool(note.get("accelerator")),
        resources=Resources(disk_bytes=int(note.get("disk", 0))),
        runtime=TaskRuntime(image=str(note.get("image", ""))),
        limits=LimitRequest(memory_bytes=int(note.get("memory", 0))),
        grace_ms=int(note.get("grace", 0)),
        watch=WatchRules(**note["watch"]) if note.get("watch") else NOT_WATCHED,
    )
    gang = Gang((), 0) if note.get("member") else None
    request = StartRequest(held.owner, str(note.get("task", "")), int(note.get("index", 0)), launch, gang=gang)
    attempt = Attempt(request, held.log, listener, int(note.get("uid", 0)))
    attempt.slot = str(note.get("slot", ""))
    attempt.progress = str(note.get("progress", ""))
    attempt.kills_before = int(note.get("kills", 0))
    attempt.chips = tuple(map(str, note.get("chips", ())))
    attempt.places = tuple(map(str, note.get("places", ())))
    stop = StopAsked(*note["stop"]) if note.get("stop") else None
    if held.pid:
        attempt.state = AttemptState(AttemptPhase.RUNNING, TaskState.RUNNING, stop, held.pid)
        attempt.state = replace(attempt.state, unhealthy=str(note.get("unhealthy", "")))
        attempt.started_at_ms = held.at_ms
    else:
        attempt.state = AttemptState(AttemptPhase.STARTING, TaskState.ASSIGNED, stop)
    attempt.at_ms = held.at_ms
    attempt.log.grew(held.log_size)
    return attempt
