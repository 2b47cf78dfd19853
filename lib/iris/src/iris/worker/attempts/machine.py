"""The life of one attempt as a pure state machine: an event yields a new state and instructions.

    NEW -> BUILDING -> STARTING -> RUNNING -> ENDED (without BUILDING if there is nothing to prepare)

A prefilled attempt stays in phase NEW until its turn. An attempt that is handed back ends as PENDING.

After a stop request an attempt ends as KILLED, whatever its exit code. If the worker shuts down, its attempts end as
WORKER_FAILED: they are retried elsewhere and do not count as the user's failure.
"""

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from iris.domain.states import FailureKind, TaskState
from rigging.errors import MarinError

# As the system says it, and uv in its words.
_FULL_DISK: Final = re.compile(r"No space left on device|Disk quota exceeded")
_BY_FILES: Final = frozenset({FailureKind.WORKER, FailureKind.ENVIRONMENT})


class AttemptPhase(StrEnum):
    """Phases of an attempt on this worker."""

    NEW = "new"
    BUILDING = "building"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


class IllegalEvent(MarinError, RuntimeError):
    """An event that cannot happen in this phase: a bug in the worker."""


# --- events ---


@dataclass(frozen=True, slots=True)
class Accepted:
    """The controller requested the attempt; `prepare` is whether anything must be fetched or built first."""

    prepare: bool


@dataclass(frozen=True, slots=True)
class Prepared:
    """The bundle, environment and payload of the command are ready."""


@dataclass(frozen=True, slots=True)
class PrepareFailed:
    """The attempt could not be prepared; `kind` is the kind of failure."""

    kind: FailureKind
    error: str


@dataclass(frozen=True, slots=True)
class Handed:
    """The worker has asked the guardian to start the command."""


@dataclass(frozen=True, slots=True)
class Spawned:
    """The command has started."""

    pid: int


@dataclass(frozen=True, slots=True)
class SpawnFailed:
    """The command was not started and never will be."""

    kind: FailureKind
    error: str
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Exited:
    """The command and its descendants have exited; `error` and `failure` describe a failure."""

    code: int
    signal: int
    error: str
    failure: FailureKind = FailureKind.USER
    fenced: str = ""
    """Why the guardian killed the attempt for lack of contact; empty if it did not."""
    lost: str = ""
    """How much of the output is missing from the log."""
    returned: bool = True
    """False for a callable whose process exited before its function returned."""


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The attempt must stop: SIGTERM now, SIGKILL after `grace_ms`.

    Args:
        leaving: The worker is shutting down.
        preempted: The platform preempts the host.
        notice: Why its capacity is taken (`PreemptionReason`): the task has a notice. Empty for a plain stop.
    """

    reason: str
    grace_ms: int
    leaving: bool = False
    preempted: bool = False
    notice: str = ""


@dataclass(frozen=True, slots=True)
class Unhealthy:
    """The command is unhealthy or stalled and must stop, which counts as the user's failure."""

    reason: str
    grace_ms: int


@dataclass(frozen=True, slots=True)
class HandedBack:
    """The attempt will not start: it waited too long, or another attempt runs the task."""

    reason: str


Event = (
    Unhealthy | HandedBack | Accepted | Prepared | PrepareFailed | Handed | Spawned | SpawnFailed | Exited | StopAsked
)

# --- instructions ---


class Act(StrEnum):
    """Instructions for the caller, in order."""

    PREPARE = "prepare"
    CANCEL_PREPARE = "cancel_prepare"
    SPAWN = "spawn"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class Terminate:
    """Terminate the command, and kill it after this time. With a notice the command is told why first."""

    grace_ms: int
    notice: str = ""


Instruction = Act | Terminate


@dataclass(frozen=True, slots=True)
class AttemptState:
    """The phase of an attempt, and the fields of its next report."""

    phase: AttemptPhase = AttemptPhase.NEW
    task_state: TaskState = TaskState.ASSIGNED
    stop: StopAsked | None = None
    pid: int = 0
    exit_code: int = 0
    exit_signal: int = 0
    error: str = ""
    failure: FailureKind = FailureKind.UNSPECIFIED
    unhealthy: str = ""


NOTHING: Final[tuple[Instruction, ...]] = ()
_REPORT: Final[tuple[Instruction, ...]] = (Act.REPORT,)
_SPAWN: Final[tuple[Instruction, ...]] = (Act.SPAWN,)

Step = tuple[AttemptState, tuple[Instruction, ...]]


def advance(state: AttemptState, event: Event) -> Step:
    """Apply one event. Repeated stops have no effect. Raises IllegalEvent for an event that this phase does not
    allow.
    """
    match event:
        case Exited():
            if state.phase is AttemptPhase.RUNNING:
                return _exited(state, event)
        case HandedBack(reason):
            if state.phase in (AttemptPhase.NEW, AttemptPhase.BUILDING):
                handed_back = AttemptState(AttemptPhase.ENDED, TaskState.PENDING, error=reason)
                is_building = state.phase is AttemptPhase.BUILDING
                return handed_back, (Act.CANCEL_PREPARE, Act.REPORT) if is_building else _REPORT
        case Handed():
            if state.phase in (AttemptPhase.NEW, AttemptPhase.BUILDING):
                return AttemptState(AttemptPhase.STARTING, state.task_state, state.stop), NOTHING
        case Spawned(pid):
            if state.phase is AttemptPhase.STARTING:
                return AttemptState(AttemptPhase.RUNNING, TaskState.RUNNING, state.stop, pid), _REPORT
        case Accepted(prepare):
            if state.phase is AttemptPhase.NEW:
                if prepare:
                    return AttemptState(AttemptPhase.BUILDING, TaskState.BUILDING), (Act.REPORT, Act.PREPARE)
                return state, _SPAWN
        case Prepared():
            if state.phase is AttemptPhase.BUILDING:
                return state, _SPAWN
        case PrepareFailed(kind, error):
            if state.phase is AttemptPhase.BUILDING:
                return _ended_early(state, kind, error)
        case SpawnFailed(kind, error, exit_code):
            if state.phase in (AttemptPhase.NEW, AttemptPhase.BUILDING, AttemptPhase.STARTING):
                return _ended_early(state, kind, error, exit_code)
        case StopAsked():
            return _stop(state, event)
        case Unhealthy(reason, grace_ms):
            if state.phase is not AttemptPhase.RUNNING or state.stop is not None or state.unhealthy:
                return state, NOTHING  # it is on its way out
            return replace(state, unhealthy=reason), (Terminate(grace_ms),)
    raise IllegalEvent(f"{event} is not possible for an attempt in phase {state.phase}: {state}")


def _exited(state: AttemptState, event: Exited) -> Step:
    task_state, error, failure = TaskState.SUCCEEDED, "", FailureKind.UNSPECIFIED
    if state.stop is not None:
        task_state, error, failure = _stopped_end(state.stop)
    elif event.fenced:
        # It did nothing wrong, and neither did its host.
        task_state, error, failure = TaskState.WORKER_FAILED, event.fenced, FailureKind.PREEMPTED
    elif state.unhealthy:
        # Whatever its code: it was ended for this.
        task_state, error, failure = TaskState.FAILED, state.unhealthy, FailureKind.USER
    elif event.code or event.signal or not event.returned:
        task_state, error, failure = TaskState.FAILED, event.error, event.failure
    error = f"{error}\n{event.lost}".strip()
    return (
        AttemptState(AttemptPhase.ENDED, task_state, state.stop, state.pid, event.code, event.signal, error, failure),
        _REPORT,
    )


def _ended_early(state: AttemptState, kind: FailureKind, error: str, exit_code: int = 0) -> Step:
    if state.stop is not None:
        task_state, error, kind = _stopped_end(state.stop)
    else:
        # The worker's own faults (no disk, no bundle) must not eat the user's retries.
        if kind in _BY_FILES and _FULL_DISK.search(error):
            kind = FailureKind.DISK  # neither the user's nor a broken host's
        hosts = kind in (FailureKind.WORKER, FailureKind.PREEMPTED, FailureKind.DISK)
        task_state = TaskState.WORKER_FAILED if hosts else TaskState.FAILED
    return replace(
        state, phase=AttemptPhase.ENDED, task_state=task_state, error=error, failure=kind, exit_code=exit_code
    ), _REPORT


def _stop(state: AttemptState, event: StopAsked) -> Step:
    if state.phase is AttemptPhase.ENDED:
        return state, NOTHING
    if state.stop is not None and state.stop.notice and not event.leaving:
        return state, NOTHING  # repeated after a new connection: it does not cut the grace short
    # The first reason stays, but a worker that leaves does not turn the user's stop into a worker failure.
    stopped = state if state.stop is not None else replace(state, stop=event)
    if state.phase in (AttemptPhase.STARTING, AttemptPhase.RUNNING):
        return stopped, (Terminate(event.grace_ms, event.notice),)
    task_state, error, failure = _stopped_end(stopped.stop or event)
    ended = replace(stopped, phase=AttemptPhase.ENDED, task_state=task_state, error=error, failure=failure)
    return ended, (Act.CANCEL_PREPARE, Act.REPORT) if state.phase is AttemptPhase.BUILDING else _REPORT


def _stopped_end(stop: StopAsked) -> tuple[TaskState, str, FailureKind]:
    if stop.leaving:
        kind = FailureKind.PREEMPTED if stop.preempted else FailureKind.WORKER
        return TaskState.WORKER_FAILED, stop.reason, kind
    return TaskState.KILLED, stop.reason, FailureKind.UNSPECIFIED
