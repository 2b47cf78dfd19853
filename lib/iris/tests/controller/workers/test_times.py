"""When a job began and ended is told as its worker saw it, however late that is heard and however its clock stands."""

import time
from typing import Any

import pytest

from iris.controller.services.convert_worker import clock_shift
from iris.rpc import iris_pb2 as pb
from iris.testing.worker import ScriptedWorker
from rigging.testing import eventually

HOUR_MS = 3_600_000


@pytest.mark.parametrize("skew_ms", [0, HOUR_MS, -HOUR_MS])
def test_an_end_that_is_told_late_was_when_it_was(user: Any, worker: ScriptedWorker, skew_ms: int) -> None:
    user.submit("/ann/a")
    worker.wait_for_start("/ann/a/0:0")
    # What it saw lies after the submission.
    eventually(lambda: time.time() * 1000 > user.get("/ann/a").submitted_at_ms + 200, "some time has passed")
    now = int(time.time() * 1000)
    end = pb.Observation(
        attempt_id="/ann/a/0:0",
        state=pb.TASK_STATE_FAILED,
        exit_code=3,
        started_at_ms=now + skew_ms - 200,
        at_ms=now + skew_ms - 150,
    )
    worker.send(pb.WorkerMessage(observations=[end], sent_at_ms=now + skew_ms))
    job, task = user.wait_one("/ann/a"), user.task("/ann/a/0")
    assert task.finished_at_ms - task.started_at_ms == 50
    assert (job.started_at_ms, job.finished_at_ms) == (task.started_at_ms, task.finished_at_ms)
    assert -20 <= job.finished_at_ms - (now - 150) < 5_000, "it is later by the time that the message took"


def test_a_worker_that_says_nothing_of_its_clock_is_believed_within_bounds(user: Any, worker: ScriptedWorker) -> None:
    user.submit("/ann/a")
    worker.wait_for_start("/ann/a/0:0")
    far = int(time.time() * 1000) + HOUR_MS
    worker.observe("/ann/a/0:0", pb.TASK_STATE_SUCCEEDED, started_at_ms=5, at_ms=far)
    job = user.wait_one("/ann/a")
    assert job.started_at_ms == job.submitted_at_ms
    assert job.finished_at_ms < far - HOUR_MS / 2


def test_a_shift_is_only_known_of_those_who_say_when_they_spoke() -> None:
    assert clock_shift(0, 1_000) == 0
    assert clock_shift(400, 1_000) == 600
    assert clock_shift(1_400, 1_000) == -400
