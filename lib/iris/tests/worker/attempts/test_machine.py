import pytest

from iris.domain.states import FailureKind, TaskState
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


def play(*events: Event) -> tuple[AttemptState, list[Instruction]]:
    after = AttemptState()
    instructions: list[Instruction] = []
    for event in events:
        after, more = advance(after, event)
        instructions += more
    return after, instructions


def test_nothing_to_prepare_skips_building() -> None:
    after, instructions = play(Accepted(prepare=False), Handed(), Spawned(7), Exited(0, 0, ""))
    assert instructions == [Act.SPAWN, Act.REPORT, Act.REPORT]
    assert (after.task_state, after.pid, after.error) == (TaskState.SUCCEEDED, 7, "")


@pytest.mark.parametrize("code", [0, 143])
def test_what_is_unhealthy_is_ended_and_has_failed_whatever_its_code(code: int) -> None:
    sick = Unhealthy("stalled: no progress for 9 s", 700)
    after, instructions = play(Accepted(prepare=False), Handed(), Spawned(7), sick, sick, Exited(code, 0, "exit code"))
    assert instructions.count(Terminate(700)) == 1
    assert (after.task_state, after.failure, after.error) == (TaskState.FAILED, FailureKind.USER, sick.reason)


@pytest.mark.parametrize(
    ("events", "state", "error"),
    [
        ((STOP, Unhealthy("sick", 1)), TaskState.KILLED, "user asked"),
        ((Unhealthy("sick", 1), STOP), TaskState.KILLED, "user asked"),
        ((LEAVE, Unhealthy("sick", 1)), TaskState.WORKER_FAILED, "worker ends"),
    ],
)
def test_a_stop_is_a_stop_also_of_what_is_unhealthy(events: tuple[Event, ...], state: TaskState, error: str) -> None:
    after, _ = play(Accepted(prepare=False), Handed(), Spawned(7), *events, Exited(0, 15, "killed"))
    assert (after.task_state, after.error) == (state, error)


def test_what_has_ended_is_not_unhealthy_any_more() -> None:
    ended, _ = play(Accepted(prepare=False), Handed(), Spawned(7), Exited(0, 0, ""))
    assert advance(ended, Unhealthy("sick", 1)) == (ended, NOTHING)


def test_preparation_comes_before_the_start() -> None:
    after, instructions = play(Accepted(prepare=True))
    assert (after.task_state, instructions) == (TaskState.BUILDING, [Act.REPORT, Act.PREPARE])
    _, instructions = advance(after, Prepared())
    assert instructions == (Act.SPAWN,)


@pytest.mark.parametrize(
    ("end", "state", "failure", "error"),
    [
        (Exited(3, 0, "exit code 3"), TaskState.FAILED, FailureKind.USER, "exit code 3"),
        (Exited(0, 9, "killed by SIGKILL"), TaskState.FAILED, FailureKind.USER, "killed by SIGKILL"),
    ],
)
def test_a_command_that_fails_is_the_users_failure(
    end: Exited, state: TaskState, failure: FailureKind, error: str
) -> None:
    after, _ = play(Accepted(False), Handed(), Spawned(7), end)
    assert (after.task_state, after.failure, after.error) == (state, failure, error)
    assert (after.exit_code, after.exit_signal) == (end.code, end.signal)


@pytest.mark.parametrize("end", [Exited(0, 0, ""), Exited(1, 0, "exit code 1"), Exited(0, 15, "killed by SIGTERM")])
def test_a_stopped_attempt_is_killed_whatever_its_command_does_then(end: Exited) -> None:
    after, instructions = play(Accepted(False), Handed(), Spawned(7), STOP, end)
    assert instructions[2] == Terminate(500)
    assert (after.task_state, after.error, after.failure) == (TaskState.KILLED, "user asked", FailureKind.UNSPECIFIED)


def test_an_attempt_whose_worker_leaves_is_the_workers_failure() -> None:
    after, _ = play(Accepted(False), Handed(), Spawned(7), LEAVE, Exited(0, 15, "killed by SIGTERM"))
    assert (after.task_state, after.failure) == (TaskState.WORKER_FAILED, FailureKind.WORKER)


def test_a_leaving_worker_does_not_turn_the_users_stop_into_its_own_failure() -> None:
    after, _ = play(Accepted(False), Handed(), Spawned(7), STOP, LEAVE, Exited(0, 15, ""))
    assert (after.task_state, after.error) == (TaskState.KILLED, "user asked")


def test_a_stop_while_it_starts_reaches_it() -> None:
    after, instructions = play(Accepted(False), Handed(), STOP)
    assert instructions[-1] == Terminate(500)
    after, _ = advance(after, Spawned(7))
    after, _ = advance(after, Exited(0, 15, "killed by SIGTERM"))
    assert (after.task_state, after.pid, after.error) == (TaskState.KILLED, 7, "user asked")


def test_a_stop_that_comes_before_its_process_ends_it_as_stopped() -> None:
    after, _ = play(Accepted(False), Handed(), STOP, SpawnFailed(FailureKind.PREEMPTED, "stopped before it started"))
    assert (after.task_state, after.error, after.failure) == (TaskState.KILLED, "user asked", FailureKind.UNSPECIFIED)


def test_a_fenced_attempt_is_nobodys_failure() -> None:
    after, _ = play(Accepted(False), Handed(), Spawned(7), Exited(0, 9, "killed by SIGKILL", fenced="no contact"))
    assert (after.task_state, after.failure, after.error) == (
        TaskState.WORKER_FAILED,
        FailureKind.PREEMPTED,
        "no contact",
    )
    after, _ = play(Accepted(False), Handed(), SpawnFailed(FailureKind.PREEMPTED, "no contact"))
    assert (after.task_state, after.failure) == (TaskState.WORKER_FAILED, FailureKind.PREEMPTED)


def test_stop_while_building_ends_it_at_once() -> None:
    after, instructions = play(Accepted(True), STOP)
    assert after.phase is AttemptPhase.ENDED
    assert after.task_state is TaskState.KILLED
    assert instructions[2:] == [Act.CANCEL_PREPARE, Act.REPORT]


def test_stop_of_an_ended_attempt_changes_nothing() -> None:
    ended, _ = play(Accepted(False), Handed(), Spawned(7), Exited(0, 0, ""))
    assert advance(ended, STOP) == (ended, NOTHING)


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        (FailureKind.ENVIRONMENT, TaskState.FAILED),
        (FailureKind.WORKER, TaskState.WORKER_FAILED),
    ],
)
def test_failed_preparation_says_whose_fault_it_was(kind: FailureKind, state: TaskState) -> None:
    after, _ = play(Accepted(True), PrepareFailed(kind, "why"))
    assert (after.task_state, after.failure, after.error) == (state, kind, "why")


def test_a_command_that_cannot_start() -> None:
    after, instructions = play(Accepted(False), Handed(), SpawnFailed(FailureKind.START, "not found"))
    assert after.exit_code == 0, "unless it has one, as a shell would give it"
    assert (after.task_state, after.failure, after.error) == (TaskState.FAILED, FailureKind.START, "not found")
    assert instructions == [Act.SPAWN, Act.REPORT]


@pytest.mark.parametrize("event", [Exited(0, 0, ""), Prepared(), PrepareFailed(FailureKind.USER, "")])
def test_events_out_of_order_are_refused_with_the_story(event: Event) -> None:
    with pytest.raises(IllegalEvent, match="cannot happen to an attempt that is new"):
        advance(AttemptState(), event)


@pytest.mark.parametrize("kind", [FailureKind.OOM, FailureKind.DEVICE])
def test_what_the_evidence_says_is_reported(kind: FailureKind) -> None:
    after, _ = play(Accepted(False), Handed(), Spawned(7), Exited(1, 0, "why", kind))
    assert (after.task_state, after.failure, after.error) == (TaskState.FAILED, kind, "why")


def test_a_host_that_the_platform_takes_away_is_nobodys_fault_here() -> None:
    preempted = StopAsked("the platform takes it", 500, leaving=True, preempted=True)
    after, _ = play(Accepted(False), Handed(), Spawned(7), preempted, Exited(0, 15, "killed by SIGTERM"))
    assert (after.task_state, after.failure) == (TaskState.WORKER_FAILED, FailureKind.PREEMPTED)


def test_an_end_has_nothing_of_what_was_before_it_but_the_pid_and_the_stop() -> None:
    after, instructions = play(Accepted(True), Prepared(), Handed(), Spawned(7), STOP, Exited(2, 15, "why"))
    assert after == AttemptState(
        AttemptPhase.ENDED, TaskState.KILLED, STOP, 7, 2, 15, "user asked", FailureKind.UNSPECIFIED
    )
    assert instructions[-1] is Act.REPORT
    started, _ = play(Accepted(True), Prepared(), Handed())
    assert (started.phase, started.task_state) == (AttemptPhase.STARTING, TaskState.BUILDING)
    running, _ = play(Accepted(True), Prepared(), Handed(), Spawned(7))
    assert running == AttemptState(AttemptPhase.RUNNING, TaskState.RUNNING, None, 7)


def test_lost_output_is_said_whatever_the_end_was() -> None:
    lost = "5 bytes of output lost"
    for end, error in ((Exited(0, 0, "", lost=lost), lost), (Exited(1, 0, "why", lost=lost), f"why\n{lost}")):
        after, _ = play(Accepted(False), Handed(), Spawned(7), end)
        assert after.error == error
    after, _ = play(Accepted(False), Handed(), Spawned(7), STOP, Exited(0, 15, "", lost=lost))
    assert (after.task_state, after.error) == (TaskState.KILLED, f"user asked\n{lost}")


@pytest.mark.parametrize("before", [(), (Accepted(True),), (Accepted(True), Prepared())])
def test_a_stop_before_the_start_ends_it_at_once(before: tuple[Event, ...]) -> None:
    after, instructions = play(*before, STOP)
    assert (after.phase, after.task_state, after.error, after.stop) == (
        AttemptPhase.ENDED,
        TaskState.KILLED,
        "user asked",
        STOP,
    )
    assert instructions[-1] is Act.REPORT
    assert (Act.CANCEL_PREPARE in instructions) == bool(before)
    leaving, _ = play(*before, LEAVE)
    assert (leaving.task_state, leaving.failure, leaving.error) == (
        TaskState.WORKER_FAILED, FailureKind.WORKER, "worker ends",
    )  # fmt: skip


def test_a_second_stop_asks_again_with_its_own_grace_and_keeps_the_first_reason() -> None:
    after, instructions = play(Accepted(False), Handed(), Spawned(7), STOP, StopAsked("again", 9))
    assert instructions[-2:] == [Terminate(500), Terminate(9)]
    assert after.stop == STOP


def test_a_start_that_fails_has_the_exit_code_that_a_shell_would_have() -> None:
    after, _ = play(Accepted(False), Handed(), SpawnFailed(FailureKind.START, "not found", 127))
    assert (after.phase, after.exit_code) == (AttemptPhase.ENDED, 127)


EVENTS: dict[str, Event] = {
    "accepted": Accepted(True),
    "prepared": Prepared(),
    "prepare failed": PrepareFailed(FailureKind.USER, ""),
    "handed": Handed(),
    "spawned": Spawned(7),
    "spawn failed": SpawnFailed(FailureKind.START, ""),
    "exited": Exited(0, 0, ""),
    "stop": STOP,
}
POSSIBLE = {
    AttemptPhase.NEW: {"accepted", "handed", "spawn failed", "stop"},
    AttemptPhase.BUILDING: {"prepared", "prepare failed", "handed", "spawn failed", "stop"},
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
        with pytest.raises(IllegalEvent, match=f"cannot happen to an attempt that is {phase.value}"):
            advance(after, EVENTS[name])


def test_one_whose_turn_did_not_come_is_somebody_elses() -> None:
    after, instructions = play(HandedBack("too late"))
    assert (after.phase, after.task_state, after.error) == (AttemptPhase.ENDED, TaskState.PENDING, "too late")
    assert instructions == [Act.REPORT]
    with pytest.raises(IllegalEvent):
        play(Accepted(True), HandedBack("too late"))
