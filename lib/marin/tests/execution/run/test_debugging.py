"""A debugger at failed steps: in the run's own thread, while no other step starts."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from marin.execution import Executor, ExecutorStep
from marin.execution.run.step_task import StepResult
from rigging.errors import StepFailed

MakeStep = Callable[..., ExecutorStep[Any]]


def fail(config: Any) -> None:
    raise ValueError("no shards")


def test_no_step_starts_while_a_failure_is_debugged(make_step: MakeStep, make_executor: Callable[[], Executor]) -> None:
    executor, ran = make_executor(), list[str]()
    threads: list[threading.Thread] = []

    def debug(result: StepResult) -> None:
        assert isinstance(result.error, ValueError)
        threads.append(threading.current_thread())
        assert not started.wait(0.3)

    started = threading.Event()

    def note(config: Any) -> None:
        started.set()
        ran.append("later")

    executor.debug = debug
    with pytest.raises(StepFailed, match="1 step"):
        executor.run([make_step("bad", fn=fail), make_step("later", fn=note)], max_concurrent=1)
    assert threads == [threading.current_thread()]
    assert ran == ["later"], "after the debugger was left"
    assert executor.failures.is_told


def test_every_failure_is_debugged_and_those_that_follow_are_not(
    make_step: MakeStep, make_executor: Callable[[], Executor]
) -> None:
    executor, seen = make_executor(), list[str]()
    executor.debug = lambda result: seen.append(result.task.name)
    bad = [make_step(f"bad{number}", fn=fail) for number in range(3)]
    with pytest.raises(StepFailed, match="3 step"):
        executor.run([make_step("after", bad)])
    assert sorted(seen) == ["bad0", "bad1", "bad2"]


def test_a_retried_step_is_debugged_when_its_last_attempt_failed(
    make_step: MakeStep, make_executor: Callable[[], Executor]
) -> None:
    executor, seen = make_executor(), list[str]()
    executor.debug = lambda result: seen.append(result.task.name)
    with pytest.raises(StepFailed):
        executor.run([make_step("bad", fn=fail, retries=2, retry_delay=0.0)])
    assert seen == ["bad"]


def test_what_is_raised_by_the_debugger_ends_the_run(
    make_step: MakeStep, make_executor: Callable[[], Executor]
) -> None:
    executor, ran = make_executor(), list[str]()

    def leave(result: StepResult) -> None:
        raise StepFailed("left by q")

    executor.debug = leave
    with pytest.raises(StepFailed, match="left by q"):
        executor.run(
            [make_step("bad", fn=fail), make_step("later", fn=lambda _: ran.append("later"))], max_concurrent=1
        )
    assert ran == []
    assert [result.task.name for result in executor.results] == ["bad"], "what has ended by then is known"
