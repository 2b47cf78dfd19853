"""Real tasks under a real guardian: health commands where the task is, stalls with their threads, ends as failures."""

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from iris.domain.states import FailureKind, TaskState
from iris.rpc.generated import iris_pb2 as pb
from support.iris.worker_fixtures import FakeController, InProcessWorker, run_command

pytestmark = pytest.mark.process

JOB = "/user/job/0:0"
HANGING = """
import threading, time
import iris

def stuck_in_a_loop_of_its_own():
    time.sleep(600)

iris.report_progress()
threading.Thread(target=stuck_in_a_loop_of_its_own, daemon=True).start()
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


async def test_a_health_command_beside_its_task_ends_it(controller: FakeController, worker: InProcessWorker) -> None:
    health = 'echo "in $PWD of $IRIS_TASK_ID"; test ! -e broken'
    script = 'echo "dir $PWD"; sleep 1; touch broken; sleep 600'
    end = await ended(controller, watched("sh", "-c", script, health_cmd=health))
    assert (end.state, end.failure) == (int(TaskState.FAILED), int(FailureKind.USER))
    assert end.error.startswith("unhealthy: the health command failed 2 times in a row, last with output: in /")
    directory = controller.output(JOB).decode().split()[1]
    assert f"in {directory} of /user/job/0" in end.error


HANGS = {"health_cmd": "sleep 600", "health_timeout_ms": 500, "health_retries": 1}


@pytest.mark.parametrize(
    ("run", "error", "logged"),
    [
        (watched("sleep", "600", **HANGS), "unhealthy: .* failed once, last with a timeout after 0.5 s$", ()),
        (watched("sh", "-c", "sleep 1; exit 3", health_cmd="true"), "exit code 3$", ()),
        (
            watched(sys.executable, "-c", HANGING, stall_timeout_ms=1500),
            "stalled: no progress for 1.5 s; the threads of process ",
            ("stuck_in_a_loop_of_its_own", "Current thread"),
        ),
        (watched(sys.executable, "-c", WORKING, stall_timeout_ms=1200), "$", ()),
        (
            watched("sleep", "600", stall_timeout_ms=300),
            "stalled: no progress for 0.3 s; no thread dump: none of its live Python processes",
            (),
        ),
    ],
    ids=["health command hangs", "is well", "hangs", "reports progress beyond its time", "is no Python"],
)
async def test_one_that_is_watched_ends(
    controller: FakeController, worker: InProcessWorker, run: pb.RunAttempts, error: str, logged: tuple[str, ...]
) -> None:
    end = await ended(controller, run)
    assert re.match(error, end.error), end.error
    assert end.state == int(TaskState.FAILED if end.error else TaskState.SUCCEEDED)
    assert end.failure == int(FailureKind.USER if end.error else FailureKind.UNSPECIFIED)
    log = controller.output(JOB, stderr=True).decode()
    assert [word for word in logged if word not in log] == []


async def test_the_next_worker_of_the_host_goes_on_watching(controller: FakeController, tmp_path: Path) -> None:
    first = await InProcessWorker.start(tmp_path / "work", controller, dict(os.environ))
    await controller.until(lambda: controller.hellos)
    controller.send(run=[watched("sh", "-c", "echo on; sleep 600", health_cmd="false", health_interval_ms=1000)])
    await controller.until(lambda: b"on" in controller.output(JOB))
    await first.abandon()
    second = await InProcessWorker.start(tmp_path / "work", controller, dict(os.environ))
    (end,) = await controller.until_ended(JOB, timeout_s=60)
    assert "unhealthy: the health command failed 2 times in a row" in end.error
    await second.close()
