"""Cordons, budgets, replaced jobs, and a controller's state off the machine, with real processes."""

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.iris.embedded_cluster import Cluster

pytestmark = pytest.mark.process


def test_a_cordoned_worker_waits_for_its_uncordon_and_says_why(cluster: Cluster, workspace: Path) -> None:
    cluster.iris("cluster", "start", "--local")
    listed = json.loads(cluster.iris("cluster", "worker", "list", "--json").out)
    assert [worker["worker_id"] for worker in listed] == ["local"]
    done = cluster.iris("cluster", "worker", "cordon", "local", "--reason", "bad fan")
    assert done.code == 0, done.text
    assert "bad fan" in cluster.iris("cluster", "worker", "list").out
    started = cluster.iris("job", "run", "--no-wait", "--job-name", "waits", "--", "true", cwd=workspace)
    assert started.code == 0, started.text
    assert "cordoned (local: bad fan)" in cluster.iris("job", "summary", "waits").out
    never = cluster.iris("job", "run", "--scheduling-timeout", "0.5", "--", "true", cwd=workspace)
    assert never.code != 0
    assert "not scheduled within 0.5 s" in never.err
    unknown = cluster.iris("cluster", "worker", "uncordon", "loacl")
    assert unknown.code == 4
    assert "did you mean 'local'?" in unknown.err
    assert "it was cordoned: bad fan" in cluster.iris("cluster", "worker", "uncordon", "local").err
    assert cluster.iris("job", "logs", "-f", "waits").code == 0
    assert json.loads(cluster.iris("job", "summary", "waits", "--json").out)["state"] == "succeeded"


def test_a_budget_is_shown_and_refuses_what_is_too_urgent(cluster: Cluster, workspace: Path) -> None:
    assert cluster.iris("user", "budget", "set", "eve", "--max-weight", "4", "--max-band", "batch").code == 0
    shown = json.loads(cluster.iris("user", "budget", "get", "eve", "--json").out)
    assert shown == {"user": "eve", "max_weight": 4, "max_band": "batch", "held_weight": 0}
    refused = cluster.iris("job", "run", "--user", "eve", "--job-name", "x", "--", "true", cwd=workspace)
    assert refused.code == 3, refused.text
    assert "the most urgent allowed is batch" in refused.err


def test_a_job_takes_the_place_of_one_of_its_name_and_a_limit_ends_it(cluster: Cluster, workspace: Path) -> None:
    run = ("job", "run", "--job-name", "same")
    assert cluster.iris(*run, "--no-wait", "--", "sleep", "600", cwd=workspace).code == 0
    assert cluster.iris(*run, "--", "true", cwd=workspace).code == 3
    done = cluster.iris(*run, "--existing", "replace", "--", "echo", "the second", cwd=workspace)
    assert done.code == 0, done.text
    assert "the second" in done.out
    late = cluster.iris("job", "run", "--timeout", "0.5", "--", "sleep", "600", cwd=workspace)
    assert late.code != 0
    assert "timed out: it ran longer than 0.5 s" in late.err


def test_a_cluster_whose_disk_is_lost_comes_back_from_its_remote_state(
    cluster: Cluster, workspace: Path, tmp_path: Path
) -> None:
    remote = str(tmp_path / "remote")
    cluster.iris("cluster", "stop", "--force")
    started = cluster.iris("cluster", "start", "--local", "--remote-state-dir", remote, "--durability", "remote")
    assert started.code == 0, started.text
    assert cluster.iris("job", "run", "--job-name", "kept", "--", "true", cwd=workspace).code == 0
    checkpoint = cluster.iris("cluster", "controller", "checkpoint", "--json")
    assert checkpoint.code == 0, checkpoint.text
    at_ms = json.loads(checkpoint.out)["at_ms"]
    assert remote in cluster.iris("cluster", "controller", "status").out
    assert cluster.iris("job", "run", "--job-name", "later", "--", "true", cwd=workspace).code == 0
    cluster.iris("cluster", "stop", "--force")
    shutil.rmtree(cluster.state_dir)
    again = cluster.iris("cluster", "start", "--local", "--remote-state-dir", remote)
    assert again.code == 0, again.text
    assert jobs(cluster) >= {"kept", "later"}
    cluster.iris("cluster", "stop", "--force")
    back = cluster.iris("cluster", "controller", "restore", "--at", str((at_ms + 1) / 1000))
    assert back.code == 0, back.text
    assert cluster.iris("cluster", "start", "--local").code == 0
    assert "later" not in jobs(cluster)
    cluster.iris("cluster", "stop", "--force")
    assert cluster.iris("cluster", "start", "--local", "--remote-state-dir", "", "--durability", "local").code == 0


def test_a_second_controller_on_one_remote_state_is_refused_by_name(cluster: Cluster, tmp_path: Path) -> None:
    serve = ("cluster", "controller", "serve", "--remote-state-dir", str(tmp_path / "remote"), "--state-dir")
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(ending(cluster.start(*serve, str(tmp_path / "a"))))
        second = cluster.iris(*serve, str(tmp_path / "b"))
        assert second.code == 3, second.text
        assert "another controller uses the remote state" in second.err
        assert str(first.pid) in second.err, "it names who holds it"
        first.terminate()
        first.wait(30)
        stack.enter_context(ending(cluster.start(*serve, str(tmp_path / "b"))))


def jobs(cluster: Cluster) -> set[str]:
    return {job["job_id"].rpartition("/")[2] for job in json.loads(cluster.iris("job", "list", "--json").out)}


@contextlib.contextmanager
def ending(process: "subprocess.Popen[str]") -> "Iterator[subprocess.Popen[str]]":
    """Yield a controller that serves; it is ended."""
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("127.0.0.1:")
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=30)
