import pytest

from iris.domain.states import FailureKind as F
from iris.domain.states import TaskState as S
from iris.worker.attempts.machine import (
    NOTHING,
    Accepted,
    Act,
    AttemptPhase,
    AttemptState,
    Event,
    Exited,
    Handed,
    HandedBack,
    IllegalEvent,
    Instruction,
    Prepared,
    PrepareFailed,
    Spawned,
    SpawnFailed,
    StopAsked,
    Terminate,
    Unhealthy,
    advance,
)

STOP = StopAsked("user asked", 500)
LEAVE = StopAsked("worker ends", 500, leaving=True)
PREEMPTED = StopAsked("the platform takes it", 500, leaving=True, preempted=True)
STARTED: tuple[Event, ...] = (Accepted(prepare=False), Handed())
RUNS: tuple[Event, ...] = (*STARTED, Spawned(7))
FULL = "x: No space left on device (os error 28)"
SICK = Unhealthy("stalled", 700)
TERM = Exited(0, 15, "killed by SIGTERM")


def play(*events: Event) -> tuple[AttemptState, list[Instruction]]:
    after = AttemptState()
    instructions: list[Instruction] = []
    for event in events:
        after, more = advance(after, event)
        instructions += more
    return after, instructions


@pytest.mark.parametrize(
    ("events", "state", "failure", "error"),
    [
        pytest.param((*RUNS, Exited(0, 0, "")), S.SUCCEEDED, F.UNSPECIFIED, "", id="success"),
        pytest.param((*RUNS, Exited(3, 0, "exit code 3")), S.FAILED, F.USER, "exit code 3", id="exit code"),
        pytest.param((*RUNS, Exited(0, 9, "SIGKILL")), S.FAILED, F.USER, "SIGKILL", id="signal"),
        pytest.param((*RUNS, Exited(0, 0, "why", returned=False)), S.FAILED, F.USER, "why", id="not returned"),
        pytest.param((*RUNS, Exited(1, 0, "why", F.OOM)), S.FAILED, F.OOM, "why", id="out of memory"),
        pytest.param((*RUNS, Exited(1, 0, "why", F.DEVICE)), S.FAILED, F.DEVICE, "why", id="device"),
        pytest.param((*RUNS, Exited(0, 9, "", fenced="cut off")), S.WORKER_FAILED, F.PREEMPTED, "cut off", id="fenced"),
        pytest.param((*RUNS, Exited(0, 0, "", lost="5 B")), S.SUCCEEDED, F.UNSPECIFIED, "5 B", id="lost, success"),
        pytest.param((*RUNS, Exited(1, 0, "why", lost="5 B")), S.FAILED, F.USER, "why\n5 B", id="lost, failure"),
        pytest.param((*RUNS, SICK, SICK, Exited(0, 0, "")), S.FAILED, F.USER, "stalled", id="sick, success"),
        pytest.param((*RUNS, SICK, Exited(143, 0, "exit code")), S.FAILED, F.USER, "stalled", id="sick, failure"),
        pytest.param((*RUNS, STOP, Exited(0, 0, "")), S.KILLED, F.UNSPECIFIED, "user asked", id="stopped, success"),
        pytest.param((*RUNS, STOP, Exited(1, 0, "why")), S.KILLED, F.UNSPECIFIED, "user asked", id="stopped, failure"),
        pytest.param(
            (*RUNS, STOP, Exited(0, 15, "", lost="5 B")), S.KILLED, F.UNSPECIFIED, "user asked\n5 B", id="stopped, lost"
        ),
        pytest.param((*RUNS, STOP, SICK, TERM), S.KILLED, F.UNSPECIFIED, "user asked", id="stopped, then sick"),
        pytest.param((*RUNS, SICK, STOP, TERM), S.KILLED, F.UNSPECIFIED, "user asked", id="sick, then stopped"),
        pytest.param((*RUNS, LEAVE, SICK, TERM), S.WORKER_FAILED, F.WORKER, "worker ends", id="worker leaves"),
        pytest.param((*RUNS, PREEMPTED, TERM), S.WORKER_FAILED, F.PREEMPTED, PREEMPTED.reason, id="preempted"),
        pytest.param((*RUNS, STOP, LEAVE, TERM), S.KILLED, F.UNSPECIFIED, "user asked", id="stopped, worker leaves"),
        pytest.param((*STARTED, STOP, Spawned(7), TERM), S.KILLED, F.UNSPECIFIED, "user asked", id="stop at start"),
        pytest.param(
            (*STARTED, STOP, SpawnFailed(F.PREEMPTED, "stopped")), S.KILLED, F.UNSPECIFIED, "user asked",
            id="stopped before its process",
        ),
        pytest.param((*STARTED, SpawnFailed(F.PREEMPTED, "x")), S.WORKER_FAILED, F.PREEMPTED, "x", id="fenced start"),
        pytest.param((*STARTED, SpawnFailed(F.START, "x")), S.FAILED, F.START, "x", id="failed start"),
        pytest.param((Accepted(True), PrepareFailed(F.ENVIRONMENT, "x")), S.FAILED, F.ENVIRONMENT, "x", id="job"),
        pytest.param((Accepted(True), PrepareFailed(F.WORKER, "x")), S.WORKER_FAILED, F.WORKER, "x", id="host"),
        pytest.param((Accepted(True), PrepareFailed(F.WORKER, FULL)), S.WORKER_FAILED, F.DISK, FULL, id="full"),
        pytest.param((Accepted(True), PrepareFailed(F.ENVIRONMENT, FULL)), S.WORKER_FAILED, F.DISK, FULL, id="uv"),
        pytest.param((*STARTED, SpawnFailed(F.WORKER, FULL)), S.WORKER_FAILED, F.DISK, FULL, id="full at the start"),
        pytest.param((*STARTED, SpawnFailed(F.START, FULL)), S.FAILED, F.START, FULL, id="words of a command"),
        pytest.param((HandedBack("too late"),), S.PENDING, F.UNSPECIFIED, "too late", id="handed back"),
    ],
)  # fmt: skip
def test_whose_fault_an_end_is(events: tuple[Event, ...], state: S, failure: F, error: str) -> None:
    after, instructions = play(*events)
    assert (after.phase, after.task_state, after.failure, after.error) == (AttemptPhase.ENDED, state, failure, error)
    assert instructions[-1] is Act.REPORT
    end = events[-1]
    if isinstance(end, Exited):
        assert (after.exit_code, after.exit_signal) == (end.code, end.signal)
    for late in (STOP, SICK):
        assert advance(after, late) == (after, NOTHING), "what has ended changes no more"


@pytest.mark.parametrize(
    ("events", "instructions"),
    [
        ((*RUNS, Exited(0, 0, "")), [Act.SPAWN, Act.REPORT, Act.REPORT]),
        ((Accepted(True), Prepared(), Handed()), [Act.REPORT, Act.PREPARE, Act.SPAWN]),
        ((*STARTED, SpawnFailed(F.START, "not found")), [Act.SPAWN, Act.REPORT]),
        ((*STARTED, STOP), [Act.SPAWN, Terminate(500)]),
        ((*RUNS, STOP, StopAsked("again", 9)), [Act.SPAWN, Act.REPORT, Terminate(500), Terminate(9)]),
        ((*RUNS, SICK, SICK), [Act.SPAWN, Act.REPORT, Terminate(700)]),
        ((*RUNS, STOP, SICK), [Act.SPAWN, Act.REPORT, Terminate(500)]),
    ],
)
def test_what_is_to_be_done(events: tuple[Event, ...], instructions: list[Instruction]) -> None:
    assert play(*events)[1] == instructions


def test_an_end_has_nothing_of_what_was_before_it_but_the_pid_and_the_stop() -> None:
    after, _ = play(Accepted(True), Prepared(), Handed(), Spawned(7), STOP, StopAsked("again", 9), Exited(2, 15, "why"))
    assert after == AttemptState(AttemptPhase.ENDED, S.KILLED, STOP, 7, 2, 15, "user asked", F.UNSPECIFIED)
    started, _ = play(Accepted(True), Prepared(), Handed())
    assert (started.phase, started.task_state) == (AttemptPhase.STARTING, S.BUILDING)
    running, _ = play(Accepted(True), Prepared(), Handed(), Spawned(7))
    assert running == AttemptState(AttemptPhase.RUNNING, S.RUNNING, None, 7)
    refused, _ = play(*STARTED, SpawnFailed(F.START, "not found", 127))
    assert (refused.exit_code, play(*STARTED, SpawnFailed(F.START, ""))[0].exit_code) == (127, 0)


@pytest.mark.parametrize("before", [(), (Accepted(True),), (Accepted(True), Prepared())])
def test_a_stop_before_the_start_ends_it_at_once(before: tuple[Event, ...]) -> None:
    after, instructions = play(*before, STOP)
    assert (after.phase, after.task_state, after.error, after.stop) == (
        AttemptPhase.ENDED, S.KILLED, "user asked", STOP,
    )  # fmt: skip
    assert instructions[-1] is Act.REPORT
    assert (Act.CANCEL_PREPARE in instructions) == bool(before)
    leaving, _ = play(*before, LEAVE)
    assert (leaving.task_state, leaving.failure, leaving.error) == (
        S.WORKER_FAILED, F.WORKER, "worker ends",
    )  # fmt: skip


EVENTS: dict[str, Event] = {
    "accepted": Accepted(True),
    "prepared": Prepared(),
    "prepare failed": PrepareFailed(F.USER, ""),
    "handed": Handed(),
    "spawned": Spawned(7),
    "spawn failed": SpawnFailed(F.START, ""),
    "exited": Exited(0, 0, ""),
    "stop": STOP,
    "handed back": HandedBack("too late"),
}
POSSIBLE = {
    AttemptPhase.NEW: {"handed back", "accepted", "handed", "spawn failed", "stop"},
    AttemptPhase.BUILDING: {"handed back", "prepared", "prepare failed", "handed", "spawn failed", "stop"},
    AttemptPhase.STARTING: {"spawned", "spawn failed", "stop"},
    AttemptPhase.RUNNING: {"exited", "stop"},
    AttemptPhase.ENDED: {"stop"},
}


@pytest.mark.parametrize("phase", AttemptPhase)
@pytest.mark.parametrize("name", EVENTS)
def test_each_event_can_happen_in_some_phases_only(phase: AttemptPhase, name: str) -> None:
    after = AttemptState(phase)
    if name in POSSIBLE[phase]:
        advance(after, EVENTS[name])
    else:
        with pytest.raises(IllegalEvent, match=f"is not possible for an attempt in phase {phase.value}"):
            advance(after, EVENTS[name])
