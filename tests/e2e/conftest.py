"""A local cluster for every test module, and functions that run experiments on backends."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fray.testing import BackendHarness
from support.iris.embedded_cluster import REPOSITORY, Cluster, running_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One local cluster for the tests of a module."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A local cluster that the test may break."""
    with running_cluster(tmp_path / "own") as running:
        yield running


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A git workspace without dependencies, so that jobs start immediately."""
    root = tmp_path / "project"
    root.mkdir()
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    (root / "raises.py").write_text(
        "import sys\nprint('before')\nsys.stdout.flush()\nraise ValueError('the step is wrong')\n"
    )
    (root / "count.py").write_text(
        "import sys, time\nn, delay = int(sys.argv[1]), float(sys.argv[2])\n"
        "for i in range(n):\n    print('line', i, flush=True)\n    time.sleep(delay)\n"
    )
    return root


def run_module(module: str, spec: str, root: Path) -> str:
    """Run an experiment on a fray backend like a user, from a directory without a project to install.

    Return its output. Outputs of steps go below `root / "prefix"`.
    """
    workspace = root / "workspace"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "experiments", workspace / "experiments", ignore=ignored, dirs_exist_ok=True)
    environment = {
        **os.environ, "FRAY_CLIENT": spec, "MARIN_PREFIX": str(root / "prefix"), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", module]
    done = subprocess.run(command, cwd=workspace, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def run(tmp_path: Path, fray_harness: BackendHarness) -> Callable[[str], str]:
    """Return a function that runs an experiment on the backend under test, with outputs below `tmp_path / "prefix"`."""
    return lambda module: run_module(module, fray_harness.spec, tmp_path)


@pytest.fixture(scope="module")
def run_here(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that runs an experiment in a separate process without a cluster, and returns the prefix."""

    def run_local(module: str) -> Path:
        root = tmp_path_factory.mktemp("here")
        run_module(module, "local", root)
        return root / "prefix"

    return run_local
