"""The life of one attempt as a pure state machine: an event yields a new state and instructions.

    NEW -> BUILDING -> STARTING -> RUNNING -> ENDED       (BUILDING is left out when there is nothing to prepare)

A prefilled attempt waits in phase NEW for its turn. One that is handed back ends as PENDING: it never started.

An attempt that was asked to stop ends as KILLED, whatever its command does then. One whose worker leaves ends as
WORKER_FAILED, so that it is retried elsewhere and is not counted as the user's failure.
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
    """The controller wants the attempt to run; `prepare` tells whether anything must be fetched or built first."""

    prepare: bool


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything that the command needs is in place."""


@dataclass(frozen=True, slots=True)
class PrepareFailed:
    """Something that the command needs is not available; `kind` tells who is at fault."""

    kind: FailureKind
    error: str


@dataclass(frozen=True, slots=True)
class Handed:
    """The guardian has been told to start the command."""


@dataclass(frozen=True, slots=True)
class Spawned:
    """The command runs."""

    pid: int


@dataclass(frozen=True, slots=True)
class SpawnFailed:
    """The command was not started and never will be."""

    kind: FailureKind
    error: str
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Exited:
    """The command and its descendants are gone; `error` and `failure` describe the end if it is not a success."""

    code: int
    signal: int
    error: str
    failure: FailureKind = FailureKind.USER
    fenced: str = ""
    """Why the guardian killed it for lack of contact; empty if it did not."""
    lost: str = ""
    """How much of its output is missing from its log, whatever the end was."""
    returned: bool = True
    """False for a callable whose process ended, with any code, before its function returned."""


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The attempt is to end: SIGTERM now, SIGKILL after `grace_ms`.

    Args:
        leaving: The worker itself is leaving. preempted: Because the platform reclaims the host.
    """

    reason: str
    grace_ms: int
    leaving: bool = False
    preempted: bool = False


@dataclass(frozen=True, slots=True)
class Unhealthy:
    """The command is to end because it is unhealthy or stalled; that counts as a failure of the user."""

    reason: str
    grace_ms: int


@dataclass(frozen=True, slots=True)
class HandedBack:
    """The attempt has not started and will not: its turn did not come in time, or another attempt has the task."""

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
    """Terminate the command, and kill it after this time."""

    grace_ms: int


Instruction = Act | Terminate


@dataclass(frozen=True, slots=True)
class AttemptState:
    """The phase of an attempt, and what to report of it."""

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
    """Apply one event. Raises IllegalEvent for one that cannot happen now; repeated stops have no effect."""
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
    raise IllegalEvent(f"{event} cannot happen to an attempt that is {state.phase}: {state}")


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
    # The first reason stays, but a worker that leaves does not turn the user's stop into a worker failure.
    stopped = state if state.stop is not None else replace(state, stop=event)
    if state.phase in (AttemptPhase.STARTING, AttemptPhase.RUNNING):
        return stopped, (Terminate(event.grace_ms),)
    task_state, error, failure = _stopped_end(stopped.stop or event)
    ended = replace(stopped, phase=AttemptPhase.ENDED, task_state=task_state, error=error, failure=failure)
    return ended, (Act.CANCEL_PREPARE, Act.REPORT) if state.phase is AttemptPhase.BUILDING else _REPORT


def _stopped_end(stop: StopAsked) -> tuple[TaskState, str, FailureKind]:
    if stop.leaving:
        kind = FailureKind.PREEMPTED if stop.preempted else FailureKind.WORKER
        return TaskState.WORKER_FAILED, stop.reason, kind
    return TaskState.KILLED, stop.reason, FailureKind.UNSPECIFIED
