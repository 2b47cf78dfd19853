"""kill -9 of the controller in the middle of a job: nothing is lost, nothing is repeated."""

import json
import os
import signal
from pathlib import Path

import pytest

from fray.testing.waiting import eventually
from support.iris.embedded_cluster import Cluster

pytestmark = pytest.mark.process


def test_a_killed_controller_comes_back_with_its_jobs_and_the_running_task_finishes_once(
    own_cluster: Cluster, workspace: Path
) -> None:
    earlier = own_cluster.start("job", "run", "--job-name", "earlier", "--", "true", cwd=workspace)
    counting = ["job", "run", "--job-name", "counter", "--", "python", "count.py", "60", "0.05"]
    counter = own_cluster.start(*counting, cwd=workspace)
    _, err = earlier.communicate(timeout=60)
    assert earlier.returncode == 0, err
    eventually(lambda: "line 3" in own_cluster.iris("job", "logs", "counter").out, "the task prints")
    first = own_cluster.controller_pid()
    os.kill(first, signal.SIGKILL)

    listing = own_cluster.iris("job", "list", "--json")
    assert listing.code == 0, listing.text
    assert own_cluster.controller_pid() != first
    names = [job["job_id"].rsplit("/", 1)[1] for job in json.loads(listing.out)]
    assert sorted(names) == ["counter", "earlier"], "two commands at once started one cluster"

    lines = [f"line {i}" for i in range(60)]
    assert own_cluster.iris("job", "logs", "-f", "counter").out.splitlines() == lines
    out, err = counter.communicate(timeout=60)
    assert counter.returncode == 0, err
    assert out.splitlines() == lines, "a command that waits survives the restart"
    summary = json.loads(own_cluster.iris("job", "summary", "counter", "--json").out)
    assert summary["state"] == "succeeded"
    assert [task["attempt"] for task in summary["tasks"]] == [0]

    assert own_cluster.iris("cluster", "stop").code == 0
    assert "earlier" in own_cluster.iris("job", "list").out, "history survives a stop of the cluster"
