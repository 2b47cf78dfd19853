import pytest

from iris.domain.states import FailureKind, TaskState
from iris.worker.attempts.machine import (
    NOTHING,
    Accepted,
    Act,
    Event,
    Exited,
    Handed,
    HandedBack,
    IllegalEvent,
    Instruction,
    Life,
    Phase,
    Prepared,
    PrepareFailed,
    Spawned,
    SpawnFailed,
    StopAsked,
    Terminate,
    advance,
)

STOP = StopAsked("user asked", 500)
LEAVE = StopAsked("worker ends", 500, leaving=True)


def play(*events: Event) -> tuple[Life, list[Instruction]]:
    life = Life()
    instructions: list[Instruction] = []
    for event in events:
        life, more = advance(life, event)
        instructions += more
    return life, instructions


def test_nothing_to_prepare_skips_building() -> None:
    life, instructions = play(Accepted(prepare=False), Handed(), Spawned(7), Exited(0, 0, ""))
    assert instructions == [Act.SPAWN, Act.REPORT, Act.REPORT]
    assert (life.state, life.pid, life.error) == (TaskState.SUCCEEDED, 7, "")


def test_preparation_comes_before_the_start() -> None:
    life, instructions = play(Accepted(prepare=True))
    assert (life.state, instructions) == (TaskState.BUILDING, [Act.REPORT, Act.PREPARE])
    _, instructions = advance(life, Prepared())
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
    life, _ = play(Accepted(False), Handed(), Spawned(7), end)
    assert (life.state, life.failure, life.error) == (state, failure, error)
    assert (life.exit_code, life.exit_signal) == (end.code, end.signal)


@pytest.mark.parametrize("end", [Exited(0, 0, ""), Exited(1, 0, "exit code 1"), Exited(0, 15, "killed by SIGTERM")])
def test_a_stopped_attempt_is_killed_whatever_its_command_does_then(end: Exited) -> None:
    life, instructions = play(Accepted(False), Handed(), Spawned(7), STOP, end)
    assert instructions[2] == Terminate(500)
    assert (life.state, life.error, life.failure) == (TaskState.KILLED, "user asked", FailureKind.UNSPECIFIED)


def test_an_attempt_whose_worker_leaves_is_the_workers_failure() -> None:
    life, _ = play(Accepted(False), Handed(), Spawned(7), LEAVE, Exited(0, 15, "killed by SIGTERM"))
    assert (life.state, life.failure) == (TaskState.WORKER_FAILED, FailureKind.WORKER)


def test_a_leaving_worker_does_not_turn_the_users_stop_into_its_own_failure() -> None:
    life, _ = play(Accepted(False), Handed(), Spawned(7), STOP, LEAVE, Exited(0, 15, ""))
    assert (life.state, life.error) == (TaskState.KILLED, "user asked")


def test_a_stop_while_it_starts_reaches_it() -> None:
    life, instructions = play(Accepted(False), Handed(), STOP)
    assert instructions[-1] == Terminate(500)
    life, _ = advance(life, Spawned(7))
    life, _ = advance(life, Exited(0, 15, "killed by SIGTERM"))
    assert (life.state, life.pid, life.error) == (TaskState.KILLED, 7, "user asked")


def test_a_stop_that_comes_before_its_process_ends_it_as_stopped() -> None:
    life, _ = play(Accepted(False), Handed(), STOP, SpawnFailed(FailureKind.PREEMPTED, "stopped before it started"))
    assert (life.state, life.error, life.failure) == (TaskState.KILLED, "user asked", FailureKind.UNSPECIFIED)


def test_a_fenced_attempt_is_nobodys_failure() -> None:
    life, _ = play(Accepted(False), Handed(), Spawned(7), Exited(0, 9, "killed by SIGKILL", fenced="no contact"))
    assert (life.state, life.failure, life.error) == (TaskState.WORKER_FAILED, FailureKind.PREEMPTED, "no contact")
    life, _ = play(Accepted(False), Handed(), SpawnFailed(FailureKind.PREEMPTED, "no contact"))
    assert (life.state, life.failure) == (TaskState.WORKER_FAILED, FailureKind.PREEMPTED)


def test_stop_while_building_ends_it_at_once() -> None:
    life, instructions = play(Accepted(True), STOP)
    assert life.phase is Phase.ENDED
    assert life.state is TaskState.KILLED
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
    life, _ = play(Accepted(True), PrepareFailed(kind, "why"))
    assert (life.state, life.failure, life.error) == (state, kind, "why")


def test_a_command_that_cannot_start() -> None:
    life, instructions = play(Accepted(False), Handed(), SpawnFailed(FailureKind.START, "not found"))
    assert life.exit_code == 0, "unless it has one, as a shell would give it"
    assert (life.state, life.failure, life.error) == (TaskState.FAILED, FailureKind.START, "not found")
    assert instructions == [Act.SPAWN, Act.REPORT]


@pytest.mark.parametrize("event", [Exited(0, 0, ""), Prepared(), PrepareFailed(FailureKind.USER, "")])
def test_events_out_of_order_are_refused_with_the_story(event: Event) -> None:
    with pytest.raises(IllegalEvent, match="cannot happen to an attempt that is new"):
        advance(Life(), event)


@pytest.mark.parametrize("kind", [FailureKind.OOM, FailureKind.DEVICE])
def test_what_the_evidence_says_is_reported(kind: FailureKind) -> None:
    life, _ = play(Accepted(False), Handed(), Spawned(7), Exited(1, 0, "why", kind))
    assert (life.state, life.failure, life.error) == (TaskState.FAILED, kind, "why")


def test_a_host_that_the_platform_takes_away_is_nobodys_fault_here() -> None:
    preempted = StopAsked("the platform takes it", 500, leaving=True, preempted=True)
    life, _ = play(Accepted(False), Handed(), Spawned(7), preempted, Exited(0, 15, "killed by SIGTERM"))
    assert (life.state, life.failure) == (TaskState.WORKER_FAILED, FailureKind.PREEMPTED)


def test_an_end_has_nothing_of_what_was_before_it_but_the_pid_and_the_stop() -> None:
    life, instructions = play(Accepted(True), Prepared(), Handed(), Spawned(7), STOP, Exited(2, 15, "why"))
    assert life == Life(Phase.ENDED, TaskState.KILLED, STOP, 7, 2, 15, "user asked", FailureKind.UNSPECIFIED)
    assert instructions[-1] is Act.REPORT
    started, _ = play(Accepted(True), Prepared(), Handed())
    assert (started.phase, started.state) == (Phase.STARTING, TaskState.BUILDING)
    running, _ = play(Accepted(True), Prepared(), Handed(), Spawned(7))
    assert running == Life(Phase.RUNNING, TaskState.RUNNING, None, 7)


def test_lost_output_is_said_whatever_the_end_was() -> None:
    lost = "5 bytes of output lost"
    for end, error in ((Exited(0, 0, "", lost=lost), lost), (Exited(1, 0, "why", lost=lost), f"why\n{lost}")):
        life, _ = play(Accepted(False), Handed(), Spawned(7), end)
        assert life.error == error
    life, _ = play(Accepted(False), Handed(), Spawned(7), STOP, Exited(0, 15, "", lost=lost))
    assert (life.state, life.error) == (TaskState.KILLED, f"user asked\n{lost}")


@pytest.mark.parametrize("before", [(), (Accepted(True),), (Accepted(True), Prepared())])
def test_a_stop_before_the_start_ends_it_at_once(before: tuple[Event, ...]) -> None:
    life, instructions = play(*before, STOP)
    assert (life.phase, life.state, life.error, life.stop) == (Phase.ENDED, TaskState.KILLED, "user asked", STOP)
    assert instructions[-1] is Act.REPORT
    assert (Act.CANCEL_PREPARE in instructions) == bool(before)
    leaving, _ = play(*before, LEAVE)
    assert (leaving.state, leaving.failure, leaving.error) == (
        TaskState.WORKER_FAILED, FailureKind.WORKER, "worker ends",
    )  # fmt: skip


def test_a_second_stop_asks_again_with_its_own_grace_and_keeps_the_first_reason() -> None:
    life, instructions = play(Accepted(False), Handed(), Spawned(7), STOP, StopAsked("again", 9))
    assert instructions[-2:] == [Terminate(500), Terminate(9)]
    assert life.stop == STOP


def test_a_start_that_fails_has_the_exit_code_that_a_shell_would_have() -> None:
    life, _ = play(Accepted(False), Handed(), SpawnFailed(FailureKind.START, "not found", 127))
    assert (life.phase, life.exit_code) == (Phase.ENDED, 127)


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
    Phase.NEW: {"accepted", "handed", "spawn failed", "stop"},
    Phase.BUILDING: {"prepared", "prepare failed", "handed", "spawn failed", "stop"},
    Phase.STARTING: {"spawned", "spawn failed", "stop"},
    Phase.RUNNING: {"exited", "stop"},
    Phase.ENDED: {"stop"},
}


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("name", EVENTS)
def test_each_event_can_happen_in_some_phases_only(phase: Phase, name: str) -> None:
    life = Life(phase)
    if name in POSSIBLE[phase]:
        advance(life, EVENTS[name])
    else:
        with pytest.raises(IllegalEvent, match=f"cannot happen to an attempt that is {phase.value}"):
            advance(life, EVENTS[name])


def test_one_whose_turn_did_not_come_is_somebody_elses() -> None:
    life, instructions = play(HandedBack("too late"))
    assert (life.phase, life.state, life.error) == (Phase.ENDED, TaskState.PENDING, "too late")
    assert instructions == [Act.REPORT]
    with pytest.raises(IllegalEvent):
        play(Accepted(True), HandedBack("too late"))
