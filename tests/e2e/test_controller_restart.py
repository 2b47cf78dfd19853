"""kill -9 of the controller in the middle of a job: nothing is lost, nothing is repeated."""

import json
import os
import signal

import pytest

from rigging.testing import eventually

pytestmark = pytest.mark.e2e


def test_a_killed_controller_comes_back_with_its_jobs_and_the_running_task_finishes_once(own_cluster, workspace):
    assert own_cluster.iris("job", "run", "--job-name", "earlier", "--", "true", cwd=workspace).code == 0
    submitted = own_cluster.iris(
        "job", "run", "--no-wait", "--job-name", "counter", "--", "python", "count.py", "60", "0.05", cwd=workspace
    )
    assert submitted.code == 0, submitted.text
    eventually(lambda: "line 3" in own_cluster.iris("job", "logs", "counter").out, "the task prints")
    first = own_cluster.controller_pid()
    os.kill(first, signal.SIGKILL)

    listing = own_cluster.iris("job", "list", "--json")
    assert listing.code == 0, listing.text
    assert own_cluster.controller_pid() != first
    assert {job["job_id"].rsplit("/", 1)[1] for job in json.loads(listing.out)} == {"earlier", "counter"}

    followed = own_cluster.iris("job", "logs", "-f", "counter")
    assert followed.code == 0, followed.text
    assert followed.out.splitlines() == [f"line {i}" for i in range(60)]
    summary = json.loads(own_cluster.iris("job", "summary", "counter", "--json").out)
    assert summary["state"] == "succeeded"
    assert [task["attempt"] for task in summary["tasks"]] == [0]


def test_a_waiting_command_survives_the_restart(own_cluster, workspace):
    process = own_cluster.start("job", "run", "--", "python", "count.py", "60", "0.05", cwd=workspace)
    assert process.stdout is not None
    lines = [process.stdout.readline()]
    os.kill(own_cluster.controller_pid(), signal.SIGKILL)
    assert own_cluster.iris("job", "list").code == 0
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert (lines[0] + out).splitlines() == [f"line {i}" for i in range(60)]


def test_two_commands_at_once_start_one_cluster(own_cluster, workspace):
    commands = [own_cluster.start("job", "run", "--", "true", cwd=workspace) for _ in range(4)]
    results = [(process.communicate(timeout=60), process.returncode) for process in commands]
    assert [code for _, code in results] == [0, 0, 0, 0], results
    jobs = json.loads(own_cluster.iris("job", "list", "--json").out)
    assert len(jobs) == 4


def test_history_survives_a_stop_of_the_cluster(own_cluster, workspace):
    assert own_cluster.iris("job", "run", "--job-name", "yesterday", "--", "true", cwd=workspace).code == 0
    assert own_cluster.iris("cluster", "stop").code == 0
    assert "yesterday" in own_cluster.iris("job", "list").out
