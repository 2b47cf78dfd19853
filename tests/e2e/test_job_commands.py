"""`iris job list|logs|summary|stop` on finished, running and unknown jobs; jobs that run jobs themselves."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from fray.testing.waiting import eventually
from support.iris.embedded_cluster import Cluster

pytestmark = pytest.mark.process

PARENT = """
import sys
from iris.client import IrisClient, iris_ctx
from iris.cluster.types import Entrypoint, ResourceSpec

client = iris_ctx().client
print("parent", iris_ctx().job_id, flush=True)
child = client.submit(Entrypoint.from_command("sh", "-c", "echo child runs; sleep 600"), "child", ResourceSpec(cpu=0.1))
child.wait(timeout=None)
"""
NESTED = [sys.executable, "-m", "iris.cli.main", "job", "run", "--no-workspace", "--memory", "64MB", "--"]


def job(cluster: Cluster, name: str) -> dict[str, Any]:
    result = cluster.iris("job", "summary", name, "--json")
    assert result.code == 0, result.text
    found: dict[str, Any] = json.loads(result.out)
    return found


def test_a_job_is_followed_to_its_end_and_can_be_read_and_summed_up(cluster: Cluster, workspace: Path) -> None:
    counting = ("job", "run", "--no-wait", "--job-name", "done", "--", "python", "count.py", "20", "0.05")
    assert cluster.iris(*counting, cwd=workspace).code == 0
    lines = [f"line {i}" for i in range(20)]
    for words, shown in (
        (["-f", "done"], lines),
        (["done"], lines),
        (["done", "--max-lines", "2"], lines[-2:]),
        (["done", "--max-lines", "2", "--no-tail"], lines[:2]),
    ):
        assert cluster.iris("job", "logs", *words).out.splitlines() == shown
    summary = job(cluster, "done")
    assert (summary["state"], summary["tasks"][0]["state"]) == ("succeeded", "succeeded")


def test_a_child_job_is_shown_under_its_parent_and_is_stopped_with_it(cluster: Cluster, workspace: Path) -> None:
    (workspace / "parent.py").write_text(PARENT)
    words = ["--no-wait", "--job-name", "family", "--cpu", "2", "--", "python", "parent.py"]
    started = cluster.iris("job", "run", *words, cwd=workspace)
    assert started.code == 0, started.text
    eventually(lambda: "child runs" in cluster.iris("job", "logs", "family").out, "the child prints")
    lines = cluster.iris("job", "list").out.splitlines()
    parent = next(i for i, line in enumerate(lines) if "family" in line)
    assert "child" in lines[parent + 1]
    for state in ("running", "killed"):
        summary = job(cluster, "family")
        assert (summary["state"], [child["state"] for child in summary["children"]]) == (state, [state])
        assert cluster.iris("job", "stop", "family").code == 0


def test_a_line_of_a_grandchild_is_shown_once_and_can_be_captured(cluster: Cluster, workspace: Path) -> None:
    leaf = [*NESTED, *NESTED, "sh", "-c", "echo said; echo complained >&2"]
    done = cluster.iris("job", "run", "--no-workspace", "--", *leaf, cwd=workspace)
    assert done.code == 0, done.text
    assert (done.out.count("said"), done.err.count("complained")) == (1, 1), done.text
    assert done.out.startswith("["), "under the name of the job that wrote it"
    script = f"caught=$({shlex.join([*NESTED, 'echo', 'a word'])} 2>/dev/null); echo caught $caught"
    done = cluster.iris("job", "run", "--no-workspace", "--", "sh", "-c", script, cwd=workspace)
    assert done.code == 0, done.text
    assert "caught a word\n" in done.out
