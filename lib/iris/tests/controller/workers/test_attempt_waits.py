from types import SimpleNamespace
from typing import Any

import pytest

from iris.controller.workers.attempt_waits import AttemptWaits
from iris.domain.ids import AttemptId
from iris.domain.states import TaskState


@pytest.mark.parametrize("state", [TaskState.RUNNING, TaskState.PENDING, TaskState.KILLED])
def test_words_that_come_before_their_state_is_decided_on_are_kept_and_end_with_it(state: TaskState) -> None:
    task = SimpleNamespace(attempt=0, state=TaskState.ASSIGNED, worker_id="w1")
    view: Any = SimpleNamespace(find_attempt=lambda _: (task, 0))
    waits, attempt = AttemptWaits(view), AttemptId("/ann/a/0:0")
    waits.note(attempt, "no port is free")
    assert waits.of_attempt(attempt) == ""
    task.state = TaskState.BUILDING
    assert waits.of_attempt(attempt) == "on worker w1: no port is free"
    task.state = state
    assert waits.of_attempt(attempt) == ""
    task.state = TaskState.BUILDING
    assert waits.of_attempt(attempt) == ""
