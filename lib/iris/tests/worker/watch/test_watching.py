"""Real tasks under a real guardian: health commands where the task is, stalls with their threads, ends as failures."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import cloudpickle

from iris.domain.states import FailureKind, TaskState
from iris.rpc import iris_pb2 as pb
from support.iris.worker_fixtures import FakeController, InProcessWorker, run_command

JOB = "/user/job/0:0"
Play = Callable[[Callable[[FakeController, InProcessWorker], Awaitable[None]]], None]

HANGING = """
import threading, time
import iris

def stuck_in_a_loop_of_its_own():
    time.sleep(600)

iris.report_progress()
threading.Thread(target=stuck_in_a_loop_of_its_own, daemon=True).start()
print("ready", flush=True)
time.sleep(600)
"""
WORKING = """
import time
import iris
for _ in range(30):
    iris.report_progress()
    time.sleep(0.05)
"""


def watched(*argv: str, payload: str = "", **fields: Any) -> pb.RunAttempts:
    run = run_command(*argv, payload=payload)
    if "health_cmd" in fields:
        fields = {"health_interval_ms": 50, "health_timeout_ms": 10_000, "health_retries": 2, **fields}
    run.launch.MergeFrom(pb.Launch(**fields))
    return run


async def ended(controller: FakeController, run: pb.RunAttempts) -> pb.Observation:
    controller.send(run=[run])
    (observation,) = await controller.until_ended(JOB, timeout_s=60)
    return observation


def test_a_health_command_runs_where_the_task_is_and_its_failures_end_the_attempt(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        health = 'echo "in $PWD of $IRIS_TASK_ID"; test ! -e broken'
        script = 'echo "dir $PWD"; sleep 1; touch broken; sleep 600'
        end = await ended(controller, watched("sh", "-c", script, health_cmd=health))
        assert (end.state, end.failure) == (int(TaskState.FAILED), int(FailureKind.USER))
        assert end.error.startswith("unhealthy: the health command failed 2 times in a row, last with output: in /")
        assert "of /user/job/0" in end.error
        directory = controller.output(JOB).decode().split()[1]
        assert f"in {directory} of" in end.error

    play(scenario)


def test_a_health_command_that_hangs_has_failed(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        run = watched("sleep", "600", health_cmd="sleep 600", health_timeout_ms=500, health_retries=1)
        end = await ended(controller, run)
        assert end.error == "unhealthy: the health command failed once, last with no end within 0.5 s"

    play(scenario)


def test_a_task_that_is_well_ends_as_it_ends(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        end = await ended(controller, watched("sh", "-c", "sleep 1; exit 3", health_cmd="true"))
        assert (end.exit_code, end.error) == (3, "exit code 3")

    play(scenario)


def test_a_task_that_hangs_writes_its_threads_before_it_is_ended(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        end = await ended(controller, watched(sys.executable, "-c", HANGING, stall_timeout_ms=1500))
        assert (end.state, end.failure) == (int(TaskState.FAILED), int(FailureKind.USER))
        assert end.error.startswith("stalled: no progress for 1.5 s; the threads of process ")
        log = controller.output(JOB, stderr=True).decode()
        assert "stuck_in_a_loop_of_its_own" in log, "each thread is there"
        assert "Current thread" in log

    play(scenario)


def test_a_callable_that_hangs_writes_its_threads_without_having_reported_anything(play: Play) -> None:
    def hang_for_ever() -> None:
        import time

        time.sleep(600)

    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        payload = controller.add_blob(cloudpickle.dumps((hang_for_ever, (), {})))
        end = await ended(controller, watched(payload=payload, stall_timeout_ms=3000))
        assert "the threads of process" in end.error
        assert "hang_for_ever" in controller.output(JOB, stderr=True).decode()

    play(scenario)


def test_a_task_that_reports_progress_goes_on_beyond_the_stall_timeout(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        end = await ended(controller, watched(sys.executable, "-c", WORKING, stall_timeout_ms=1200))
        assert end.state == int(TaskState.SUCCEEDED), end.error

    play(scenario)


def test_of_a_task_without_python_it_is_said_that_there_is_no_dump(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        end = await ended(controller, watched("sleep", "600", stall_timeout_ms=300))
        assert end.error.startswith(
            "stalled: no progress for 0.3 s; there is no dump of its threads: no Python process"
        )

    play(scenario)


def test_a_stop_that_was_asked_for_before_stays_a_stop(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[watched("sh", "-c", "trap '' TERM; echo on; sleep 600", stall_timeout_ms=600)])
        await controller.until(lambda: b"on" in controller.output(JOB))
        controller.send(stop=[pb.StopAttempt(attempt_id=JOB, grace_ms=1500, reason="enough")])
        (end,) = await controller.until_ended(JOB, timeout_s=60)
        assert (end.state, end.error) == (int(TaskState.KILLED), "enough")

    play(scenario)


def test_the_next_worker_of_the_host_goes_on_watching(tmp_path: Path) -> None:
    async def scenario() -> None:
        controller = FakeController()
        await controller.start()
        first = await InProcessWorker.start(tmp_path / "work", controller, dict(os.environ))
        try:
            await controller.until(lambda: controller.hellos)
            controller.send(
                run=[watched("sh", "-c", "echo on; sleep 600", health_cmd="false", health_interval_ms=1000)]
            )
            await controller.until(lambda: b"on" in controller.output(JOB))
            await first.abandon()
            second = await InProcessWorker.start(tmp_path / "work", controller, dict(os.environ))
            (end,) = await controller.until_ended(JOB, timeout_s=60)
            assert "unhealthy: the health command failed 2 times in a row" in end.error
            await second.close()
        finally:
            await controller.stop()

    asyncio.run(asyncio.wait_for(scenario(), 100))
