import pytest

from iris.domain.constraints import STORED_NUMBERS, ConstraintOp, stored_operator
from iris.domain.errors import IllegalTransition
from iris.domain.states import (
    LIVE_TASK_STATES,
    TASK_TRANSITIONS,
    TERMINAL_TASK_STATES,
    TaskState,
    check_task_transition,
)
from iris.rpc.generated import iris_pb2


def test_stored_numbers_of_operators_are_those_of_the_wire():
    on_wire = {name.removeprefix("CONSTRAINT_OP_"): number for name, number in iris_pb2.ConstraintOp.items() if number}
    assert {op.name: number for op, number in STORED_NUMBERS.items()} == on_wire
    assert set(STORED_NUMBERS) == set(ConstraintOp)
    assert [stored_operator(number, "operator") for number in STORED_NUMBERS.values()] == list(STORED_NUMBERS)


def test_every_task_state_is_waiting_live_or_ended():
    assert LIVE_TASK_STATES | TERMINAL_TASK_STATES | {TaskState.PENDING} == set(TaskState)
    assert not LIVE_TASK_STATES & TERMINAL_TASK_STATES
    assert set(TASK_TRANSITIONS) == set(TaskState)


def test_ends_are_final_except_for_finished_members_of_gangs():
    leaving = {state: TASK_TRANSITIONS[state] for state in TERMINAL_TASK_STATES if TASK_TRANSITIONS[state]}
    assert leaving == {TaskState.SUCCEEDED: {TaskState.PENDING}}


def test_an_illegal_transition_carries_the_story():
    check_task_transition("/u/j/0", TaskState.PENDING, TaskState.ASSIGNED, ())
    with pytest.raises(IllegalTransition) as caught:
        check_task_transition("/u/j/0", TaskState.KILLED, TaskState.RUNNING, ("attempt 0 on w1: exit code 3",))
    assert str(caught.value) == (
        "task /u/j/0 cannot go from killed to running; allowed: nothing, it has ended;"
        " history: attempt 0 on w1: exit code 3"
    )
    assert caught.value.history == ("attempt 0 on w1: exit code 3",)
