"""What a job is sent to a cluster's nodes by what these are: a server of the Jobs API tells of them as Ray does."""

import json
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from marin.run.ray_run import main
from marin.run.submit import jobs_api, nodes
from marin.run.submit.nodes import Nodes, is_installed, read_nodes
from support.marin.jobs_server import Job, JobsServer

COMMAND = ("--", "python", "experiments/hello_world.py")
PYTHON = f"{sys.prefix}/bin/python"


def node(python: str, hostname: str = "", head: bool = True, state: str = "ALIVE") -> dict[str, Any]:
    words = ["/x/raylet", "--a=1", f"--python_worker_command={python} /x/setup_worker.py --b=2"]
    return {
        "hostname": hostname or socket.gethostname(), "cmdline": words,
        "raylet": {"state": state, "isHeadNode": head},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ([], Nodes()),
        ([node("python")], Nodes("python", False)),
        ([node(PYTHON)], Nodes(PYTHON, True)),
        ([node(PYTHON), node("/other/bin/python", head=False)], Nodes(PYTHON, False)),
        ([node(PYTHON), node("/other/bin/python", head=False, state="DEAD")], Nodes(PYTHON, True)),
        ([node(PYTHON, "another")], Nodes(PYTHON, False)),
        ([{"hostname": socket.gethostname(), "raylet": {"state": "ALIVE", "isHeadNode": True}}], Nodes()),
    ],
    ids=["no page", "no path", "here", "another environment", "a dead node", "another machine", "no command line"],
)
def test_nodes_are_here_if_all_that_live_are(told: list[dict[str, Any]], found: Nodes) -> None:
    assert read_nodes(told, socket.gethostname(), sys.prefix) == found


@pytest.mark.parametrize(
    ("requirement", "there"),
    [
        ("pytest", True),
        ("pytest>=1,<1000", True),
        ("pytest<1", False),
        ("pytest @ git+https://x/y", True),
        ("no-such-package", False),
        ("no-such-package; python_version < '3'", True),
        ("./a.whl", False),
    ],
)
def test_what_this_environment_has(requirement: str, there: bool) -> None:
    assert is_installed(requirement) == there


def answer(at: JobsServer, monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    """Have the server's Python tell this of itself (if empty: nothing, until it is stopped); other jobs succeed."""
    monkeypatch.setenv("RAY_ADDRESS", at.address)
    monkeypatch.setattr(jobs_api, "WATCHED_SECONDS", 0.0)
    if not told:
        monkeypatch.setattr(nodes, "LOOK_SECONDS", 0.1)

    def end(job: Job) -> None:
        if job.body["submission_id"].startswith("marin-look-"):
            assert job.body["entrypoint"].startswith("/node/bin/python -c ")
            if not told:
                return
            job.log = f"Runtime env is setting up.\n{told}\n"
        job.end("SUCCEEDED", 0)

    at.on_submit = end


def look(*found: object) -> str:
    return f"marin-found {json.dumps(found)}"


@pytest.mark.parametrize(
    ("told", "code", "installed_by"),
    [
        (look(True, True, ""), 0, "pip"),
        (look(False, True, ""), 0, "uv"),
        ("No such file or directory", 0, "pip"),
        ("", 0, "pip"),
        (look(False, False, ""), 3, ""),
    ],
    ids=["pip", "uv", "it cannot tell", "it tells too late", "neither"],
)
def test_packages_are_installed_by_what_the_nodes_have(
    server: JobsServer, project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    told: str, code: int, installed_by: str,
) -> None:  # fmt: skip
    server.nodes = [node("/node/bin/python", "elsewhere")]
    answer(server, monkeypatch, told)
    assert main(COMMAND) == code
    err = capfd.readouterr().err
    if installed_by:
        assert server.job.body["runtime_env"][installed_by]["packages"] == ["fsspec>=2025.3"]
        assert f'{{"{installed_by}": {{"packages"' in err
    else:
        assert server.jobs == {}
        assert "nodes' Python, /node/bin/python, has neither pip nor uv: `uv pip install --python" in err
        assert main(["--no-project-deps", *COMMAND]) == 0


def test_a_cluster_of_this_environment_is_sent_what_it_lacks(
    server: JobsServer, project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    server.nodes = [node(PYTHON)]
    answer(server, monkeypatch, "")
    monkeypatch.setenv("MARIN_PREFIX", "/scratch/me")
    monkeypatch.setattr(nodes, "_find_here", lambda: nodes.Found(True, False))

    def sent(*words: str) -> Mapping[str, Any]:
        server.jobs.clear()
        assert main([*words, *COMMAND]) == 0
        body: dict[str, Any] = server.job.body["runtime_env"]
        return body

    first = sent()
    assert "pip" not in first
    assert first["env_vars"] == {"PATH": f"{sys.prefix}/bin:${{PATH}}", "MARIN_PREFIX": "/scratch/me"}
    assert "1 packages that it has are not sent (--project-deps sends them)" in capfd.readouterr().err
    assert sent("--pip_deps", "no-such-package")["pip"]["packages"] == ["no-such-package"]
    assert sent("--project-deps")["pip"]["packages"] == ["fsspec>=2025.3"]
    assert sent("-e", "PATH", os.environ["PATH"])["env_vars"]["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize(
    ("prefix", "said"),
    [
        ("gs://b/p", "the cluster's MARIN_PREFIX is gs://b/p"),
        ("", "warning: the cluster has no MARIN_PREFIX: except on Google Cloud, outputs will lie in /tmp/marin"),
    ],
)
def test_a_job_without_the_users_prefix_has_the_clusters_if_there_is_one(
    server: JobsServer, project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    prefix: str, said: str,
) -> None:  # fmt: skip
    server.nodes = [node("/node/bin/python", "elsewhere")]
    answer(server, monkeypatch, look(True, False, prefix))
    monkeypatch.setenv("MARIN_PREFIX", "/scratch/me")
    assert main(COMMAND) == 0
    assert said in capfd.readouterr().err
    assert "env_vars" not in server.job.body["runtime_env"]
