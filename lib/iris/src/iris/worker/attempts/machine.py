"""The life of one attempt as a pure machine: events in, a new state and instructions out.

    NEW -> BUILDING -> STARTING -> RUNNING -> ENDED       (BUILDING is left out when there is nothing to prepare)

One that was assigned ahead waits as NEW for its turn; handed back, it ends as PENDING: it never began.

An attempt that was asked to stop ends KILLED whatever its command does then; one whose worker leaves ends
WORKER_FAILED, so that it is tried elsewhere and never booked as the user's failure.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from iris.domain.states import FailureKind, TaskState
from rigging.errors import MarinError


class Phase(StrEnum):
    NEW = "new"
    BUILDING = "building"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


class IllegalEvent(MarinError, RuntimeError):
    """An event that cannot happen in this phase: a defect of the worker."""


# --- events ---


@dataclass(frozen=True, slots=True)
class Accepted:
    """The controller wants the attempt; `prepare` says whether anything must be fetched or built first."""

    prepare: bool


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything that the command needs is in place."""


@dataclass(frozen=True, slots=True)
class PrepareFailed:
    kind: FailureKind
    error: str


@dataclass(frozen=True, slots=True)
class Handed:
    """The guardian has been told to start the command."""


@dataclass(frozen=True, slots=True)
class Spawned:
    pid: int


@dataclass(frozen=True, slots=True)
class SpawnFailed:
    kind: FailureKind
    error: str
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Exited:
    """The command and its descendants are gone; `error` and `failure` describe the end when it is not a success."""

    code: int
    signal: int
    error: str
    failure: FailureKind = FailureKind.USER
    fenced: str = ""
    """Why the guardian killed it for lack of contact; empty when it did not."""
    lost: str = ""
    """How much of its output is not in its log; said whatever the end was."""


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The attempt is to end: SIGTERM now, SIGKILL after `grace_ms`.

    Args:
        leaving: The worker itself goes away. preempted: Because the platform takes the host.
    """

    reason: str
    grace_ms: int
    leaving: bool = False
    preempted: bool = False


@dataclass(frozen=True, slots=True)
class HandedBack:
    """The attempt's turn did not come in time: somebody else is to have the task."""

    reason: str


Event = HandedBack | Accepted | Prepared | PrepareFailed | Handed | Spawned | SpawnFailed | Exited | StopAsked

# --- instructions ---


class Act(StrEnum):
    """Instructions for the edge, in order."""

    PREPARE = "prepare"
    CANCEL_PREPARE = "cancel_prepare"
    SPAWN = "spawn"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class Terminate:
    """Ask the command to end, and kill it after this time."""

    grace_ms: int


Instruction = Act | Terminate


@dataclass(frozen=True, slots=True)
class Life:
    """Where an attempt is, and what there is to report of it."""

    phase: Phase = Phase.NEW
    state: TaskState = TaskState.ASSIGNED
    stop: StopAsked | None = None
    pid: int = 0
    exit_code: int = 0
    exit_signal: int = 0
    error: str = ""
    failure: FailureKind = FailureKind.UNSPECIFIED


NOTHING: Final[tuple[Instruction, ...]] = ()
_REPORT: Final[tuple[Instruction, ...]] = (Act.REPORT,)
_SPAWN: Final[tuple[Instruction, ...]] = (Act.SPAWN,)

Step = tuple[Life, tuple[Instruction, ...]]


def advance(life: Life, event: Event) -> Step:
    """Apply one event. Raises IllegalEvent for one that cannot happen now; repeated stops are harmless."""
    match event:
        case Exited():
            if life.phase is Phase.RUNNING:
                return _exited(life, event)
        case HandedBack(reason):
            if life.phase is Phase.NEW:
                return Life(Phase.ENDED, TaskState.PENDING, error=reason), _REPORT
        case Handed():
            if life.phase in (Phase.NEW, Phase.BUILDING):
                return Life(Phase.STARTING, life.state, life.stop), NOTHING
        case Spawned(pid):
            if life.phase is Phase.STARTING:
                return Life(Phase.RUNNING, TaskState.RUNNING, life.stop, pid), _REPORT
        case Accepted(prepare):
            if life.phase is Phase.NEW:
                if prepare:
                    return Life(Phase.BUILDING, TaskState.BUILDING), (Act.REPORT, Act.PREPARE)
                return life, _SPAWN
        case Prepared():
            if life.phase is Phase.BUILDING:
                return life, _SPAWN
        case PrepareFailed(kind, error):
            if life.phase is Phase.BUILDING:
                return _ended_early(life, kind, error)
        case SpawnFailed(kind, error, exit_code):
            if life.phase in (Phase.NEW, Phase.BUILDING, Phase.STARTING):
                return _ended_early(life, kind, error, exit_code)
        case StopAsked():
            return _stop(life, event)
    raise IllegalEvent(f"{event} cannot happen to an attempt that is {life.phase}: {life}")


def _exited(life: Life, event: Exited) -> Step:
    state, error, failure = TaskState.SUCCEEDED, "", FailureKind.UNSPECIFIED
    if life.stop is not None:
        state, error, failure = _stopped_end(life.stop)
    elif event.fenced:
        # It did nothing wrong, and neither did its host.
        state, error, failure = TaskState.WORKER_FAILED, event.fenced, FailureKind.PREEMPTED
    elif event.code or event.signal:
        state, error, failure = TaskState.FAILED, event.error, event.failure
    error = f"{error}\n{event.lost}".strip()
    return (
        Life(Phase.ENDED, state, life.stop, life.pid, event.code, event.signal, error, failure),
        _REPORT,
    )


def _ended_early(life: Life, kind: FailureKind, error: str, exit_code: int = 0) -> Step:
    if life.stop is not None:
        state, error, kind = _stopped_end(life.stop)
    else:
        # The worker's own faults (no disk, no bundle) must not eat the user's retries.
        hosts = kind in (FailureKind.WORKER, FailureKind.PREEMPTED)
        state = TaskState.WORKER_FAILED if hosts else TaskState.FAILED
    return replace(life, phase=Phase.ENDED, state=state, error=error, failure=kind, exit_code=exit_code), _REPORT


def _stop(life: Life, event: StopAsked) -> Step:
    if life.phase is Phase.ENDED:
        return life, NOTHING
    # The first reason stays, but a worker that leaves does not turn the user's stop into a worker failure.
    stopped = life if life.stop is not None else replace(life, stop=event)
    if life.phase in (Phase.STARTING, Phase.RUNNING):
        return stopped, (Terminate(event.grace_ms),)
    state, error, failure = _stopped_end(stopped.stop or event)
    ended = replace(stopped, phase=Phase.ENDED, state=state, error=error, failure=failure)
    return ended, (Act.CANCEL_PREPARE, Act.REPORT) if life.phase is Phase.BUILDING else _REPORT


def _stopped_end(stop: StopAsked) -> tuple[TaskState, str, FailureKind]:
    if stop.leaving:
        kind = FailureKind.PREEMPTED if stop.preempted else FailureKind.WORKER
        return TaskState.WORKER_FAILED, stop.reason, kind
    return TaskState.KILLED, stop.reason, FailureKind.UNSPECIFIED
