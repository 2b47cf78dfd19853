import pytest

from iris.domain.constraints import STORED_NUMBERS, ConstraintOp, stored_operator
from iris.domain.errors import IllegalTransition
from iris.domain.states import (
    LIVE_TASK_STATES,
    TASK_TRANSITIONS,
    TERMINAL_TASK_STATES,
    FailureKind,
    JobState,
    PriorityBand,
    TaskState,
    check_task_transition,
)
from iris.rpc import iris_pb2


@pytest.mark.parametrize(
    ("ours", "wire", "prefix"),
    [
        (JobState, iris_pb2.JobState, "JOB_STATE_"),
        (TaskState, iris_pb2.TaskState, "TASK_STATE_"),
        (FailureKind, iris_pb2.FailureKind, "FAILURE_KIND_"),
        (PriorityBand, iris_pb2.PriorityBand, "PRIORITY_BAND_"),
    ],
)
def test_numbers_are_those_of_the_wire(ours, wire, prefix):
    on_wire = {name.removeprefix(prefix): number for name, number in wire.items() if number}
    assert {member.name: int(member) for member in ours if member} == on_wire


def test_stored_numbers_of_operators_are_those_of_the_wire():
    on_wire = {name.removeprefix("CONSTRAINT_OP_"): number for name, number in iris_pb2.ConstraintOp.items() if number}
    assert {op.name: number for op, number in STORED_NUMBERS.items()} == on_wire
    assert set(STORED_NUMBERS) == set(ConstraintOp)
    assert [stored_operator(number, "operator") for number in STORED_NUMBERS.values()] == list(STORED_NUMBERS)


def test_words():
    assert JobState.WORKER_FAILED.word == "worker_failed"
    assert TaskState.ASSIGNED.word == "assigned"


def test_every_task_state_is_waiting_live_or_ended():
    assert LIVE_TASK_STATES | TERMINAL_TASK_STATES | {TaskState.PENDING} == set(TaskState)
    assert not LIVE_TASK_STATES & TERMINAL_TASK_STATES
    assert set(TASK_TRANSITIONS) == set(TaskState)


def test_ends_are_final_except_for_finished_members_of_gangs():
    leaving = {state: TASK_TRANSITIONS[state] for state in TERMINAL_TASK_STATES if TASK_TRANSITIONS[state]}
    assert leaving == {TaskState.SUCCEEDED: {TaskState.PENDING}}


def test_ended_job_states():
    live = {state for state in JobState if not state.is_terminal}
    assert live == {JobState.PENDING, JobState.BUILDING, JobState.RUNNING}


def test_an_illegal_transition_carries_the_story():
    check_task_transition("/u/j/0", TaskState.PENDING, TaskState.ASSIGNED, ())
    with pytest.raises(IllegalTransition) as caught:
        check_task_transition("/u/j/0", TaskState.KILLED, TaskState.RUNNING, ("attempt 0 on w1: exit code 3",))
    assert str(caught.value) == (
        "task /u/j/0 cannot go from killed to running; allowed: nothing, it has ended;"
        " history: attempt 0 on w1: exit code 3"
    )
    assert caught.value.history == ("attempt 0 on w1: exit code 3",)
