"""Stopping jobs on Ray: whatever they do at that moment, and without harm to the process that owns them."""

import subprocess
import sys
from pathlib import Path

import pytest

from fray.client import wait_all
from fray.testing import LONG, Flag, eventually
from fray.testing.ray_harness import RayCluster
from fray.types import Entrypoint, JobRequest, JobStatus, ResourceConfig

pytestmark = [pytest.mark.ray, pytest.mark.soak, pytest.mark.timeout(600)]

SMALL = ResourceConfig.with_cpu(cpu=0.1, ram="64m", disk="1m")
WHOLE = ResourceConfig.with_cpu(cpu=4, ram="64m", disk="1m")

END_AND_STOP = """
import random, sys, time
from fray import Entrypoint, JobRequest, ResourceConfig
from fray.backends.ray.client import RayClient

def work(seconds):
    time.sleep(seconds)

small = ResourceConfig.with_cpu(cpu=0.1, ram="64m", disk="1m")
with RayClient.connect() as client:
    for _ in range(int(sys.argv[1])):
        calls = [Entrypoint.from_callable(work, [0.001 * random.random()]) for _ in range(2)]
        first, second = [client.submit(JobRequest(f"job{n}", call, small)) for n, call in enumerate(calls)]
        first.wait(60, raise_on_failure=False)
        # It ends at about this moment, too.
        second.terminate()
        print(second.wait(60, raise_on_failure=False))
"""


def test_the_owner_does_not_cancel_tasks(cluster: RayCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import ray

    from fray.backends.ray.client import RayClient

    own_calls: list[object] = []
    monkeypatch.setattr(ray, "cancel", lambda ref, **_: own_calls.append(ref))
    begun = Flag(str(tmp_path / "begun"))
    never = Flag(str(tmp_path / "never"))

    def attend() -> None:
        begun.set()
        never.wait(LONG)

    with RayClient.connect() as client:
        running = client.submit(JobRequest("running", Entrypoint.from_callable(attend), SMALL))
        program = client.submit(JobRequest("program", Entrypoint.from_binary("sleep", ["300"]), SMALL))
        gang = client.submit(JobRequest("gang", Entrypoint.from_binary("sleep", ["300"]), SMALL, replicas=2))
        begun.wait()
        for job in (program, gang):
            eventually(lambda job=job: job.status() is JobStatus.RUNNING, "it runs")  # type: ignore[misc]
        waiting = client.submit(JobRequest("waiting", Entrypoint.from_binary("true"), WHOLE))
        jobs = [running, program, gang, waiting]
        for job in jobs:
            job.terminate()
        wait_all(jobs, LONG, raise_on_failure=False)
        assert [job.status() for job in jobs] == [JobStatus.STOPPED] * 4
    assert own_calls == [], "Ray would end this process if the task's answer arrived at that moment"


def test_jobs_can_be_stopped_when_the_session_has_died(cluster: RayCluster) -> None:
    import ray

    from fray.backends.ray.client import RayClient

    with RayClient.connect() as client:
        job = client.submit(JobRequest("running", Entrypoint.from_binary("sleep", ["300"]), SMALL))
        eventually(lambda: job.status() is JobStatus.RUNNING, "it runs")
        ray.kill(client.sessions.get(), no_restart=True)
        job.terminate()
        assert job.wait(LONG, raise_on_failure=False) is JobStatus.STOPPED


def test_a_program_that_ignores_being_asked_is_killed(cluster: RayCluster, tmp_path: Path) -> None:
    from fray.backends.ray.client import RayClient
    from fray.backends.ray.jobs.canceller import TaskCanceller

    deaf = Flag(str(tmp_path / "deaf"))
    with RayClient.connect() as client:
        client.canceller = TaskCanceller(client.sessions.ask, kill_after=0.5)
        script = 'trap "" TERM; touch "$1"; while :; do sleep 1; done'
        job = client.submit(JobRequest("deaf", Entrypoint.from_binary("sh", ["-c", script, "sh", deaf.path]), SMALL))
        deaf.wait()
        job.terminate()
        assert job.wait(LONG, raise_on_failure=False) is JobStatus.STOPPED
        client.canceller.close()


def test_stopping_jobs_at_the_moment_of_their_end_does_not_end_their_owner(cluster: RayCluster) -> None:
    rounds, command = 300, [sys.executable, "-c", END_AND_STOP]
    done = subprocess.run([*command, str(rounds)], capture_output=True, text=True, timeout=590, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    ends = done.stdout.split()
    assert len(ends) == rounds
    assert set(ends) <= {"succeeded", "stopped"}
    assert "stopped" in ends, "none was stopped in time: this tested nothing"
