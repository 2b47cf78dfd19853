"""`iris job list|logs|summary|stop` on running, finished and unknown jobs, and on a parent with a child."""

import json

import pytest

from rigging.testing import eventually

pytestmark = pytest.mark.e2e

PARENT = """
import sys
from iris.client import IrisClient, iris_ctx
from iris.cluster.types import Entrypoint, ResourceSpec

client = iris_ctx().client
print("parent", iris_ctx().job_id, flush=True)
child = client.submit(Entrypoint.from_command("sh", "-c", "echo child runs; sleep 600"), "child", ResourceSpec(cpu=0.1))
child.wait(timeout=None)
"""


def job(cluster, name: str) -> dict:
    result = cluster.iris("job", "summary", name, "--json")
    assert result.code == 0, result.text
    return json.loads(result.out)


def test_a_finished_job_can_be_listed_read_and_summed_up(cluster, workspace):
    assert (
        cluster.iris("job", "run", "--job-name", "done", "--", "python", "count.py", "5", "0", cwd=workspace).code == 0
    )
    assert cluster.iris("job", "logs", "done").out.splitlines() == [f"line {i}" for i in range(5)]
    assert cluster.iris("job", "logs", "-f", "done").out.splitlines() == [f"line {i}" for i in range(5)]
    assert cluster.iris("job", "logs", "done", "--max-lines", "2").out.splitlines() == ["line 3", "line 4"]
    assert cluster.iris("job", "logs", "done", "--max-lines", "2", "--no-tail").out.splitlines() == ["line 0", "line 1"]
    summary = job(cluster, "done")
    assert summary["state"] == "succeeded"
    assert summary["tasks"][0]["state"] == "succeeded"
    stopped = cluster.iris("job", "stop", "done")
    assert stopped.code == 0
    assert "succeeded" in stopped.text


@pytest.mark.parametrize("command", [["logs"], ["logs", "-f"], ["summary", "--json"], ["stop"]])
def test_an_unknown_job_is_named_with_the_nearest_there_is(cluster, workspace, command):
    cluster.iris("job", "run", "--job-name", "training", "--", "true", cwd=workspace)
    result = cluster.iris("job", *command, "trainning")
    assert result.code == 4, result.text
    assert "trainning" in result.err
    assert "/training" in result.err


def test_a_child_job_is_shown_under_its_parent_and_is_stopped_with_it(cluster, workspace):
    (workspace / "parent.py").write_text(PARENT)
    started = cluster.iris(
        "job", "run", "--no-wait", "--job-name", "family", "--cpu", "2", "--", "python", "parent.py", cwd=workspace
    )
    assert started.code == 0, started.text
    eventually(lambda: "child runs" in cluster.iris("job", "logs", "family").out, "the child prints")
    summary = job(cluster, "family")
    assert summary["state"] == "running"
    assert [child["state"] for child in summary["children"]] == ["running"]
    lines = cluster.iris("job", "list").out.splitlines()
    parent = next(i for i, line in enumerate(lines) if "family" in line)
    assert "child" in lines[parent + 1]

    assert cluster.iris("job", "stop", "family").code == 0
    assert job(cluster, "family")["state"] == "killed"
    assert [child["state"] for child in job(cluster, "family")["children"]] == ["killed"]


def test_following_a_running_job_ends_when_the_job_does(cluster, workspace):
    cluster.iris(
        "job", "run", "--no-wait", "--job-name", "live", "--", "python", "count.py", "20", "0.05", cwd=workspace
    )
    followed = cluster.iris("job", "logs", "-f", "live")
    assert followed.code == 0
    assert followed.out.splitlines() == [f"line {i}" for i in range(20)]
