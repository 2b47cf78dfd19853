"""Fixtures for the tests of the Ray tools."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.testing.ray_jobs import jobs_cluster
from marin.run.submit import run_job
from marin.run.submit.follow import FollowTimes
from support.marin.jobs_server import JobsServer


@pytest.fixture
def quick() -> FollowTimes:
    return FollowTimes(poll=0.01, reconnect=0.01, silence=5.0, grace=1.0, give_up=0.3, stopping=2.0, told=0.1)


@pytest.fixture
def server() -> Iterator[JobsServer]:
    with JobsServer() as running:
        yield running


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small git repository with a pyproject.toml as the current directory, and a separate home directory.

    Jobs do not receive its code state, which most tests ignore.
    """
    root = tmp_path / "project"
    (root / "experiments").mkdir(parents=True)
    (root / "experiments" / "hello_world.py").write_text("print('hello')\n")
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / ".gitignore").write_text("*.log\n")
    (root / "noise.log").write_text("not sent")
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "MARIN_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(run_job, "code_variables", lambda *_: {})
    monkeypatch.chdir(root)
    return root


@pytest.fixture(scope="session")
def jobs_address() -> Iterator[str]:
    with jobs_cluster() as cluster:
        yield cluster.jobs_address


PYPROJECT = """\
[project]
name = "study"
version = "0"
dependencies = ["fsspec>=2025.3", "ray[default]>=2.49"]

[project.optional-dependencies]
tokenize_train = ["tokenizers>=0.20", "transformers>=4.50"]
"""
