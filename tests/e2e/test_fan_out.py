"""hello_world and a two-level fan-out with an actor: the same script, the same outputs, on every backend."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fray.testing import BackendHarness

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

# A hundred processes that import the experiment take half a minute, and as many of Ray's a whole one; Iris shows the
# same in the fast tier.
FRAY_BACKENDS = [
    "local",
    pytest.param("local-process", marks=pytest.mark.slow),
    "iris",
    pytest.param("ray", marks=[pytest.mark.ray, pytest.mark.slow]),
]
EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
SHARDS = range(50)
SUM = sum(i * i + 1 for i in SHARDS)


@pytest.fixture
def run(tmp_path: Path, fray_harness: BackendHarness) -> Callable[[str], str]:
    """Runs an experiment as a user does, in a directory with the experiments and without a project to install."""
    workspace = tmp_path / "workspace"
    shutil.copytree(EXPERIMENTS, workspace / "experiments", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {
        **os.environ,
        "FRAY_CLIENT": fray_harness.spec,
        "MARIN_PREFIX": str(tmp_path / "prefix"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }

    def run_module(module: str) -> str:
        command = [sys.executable, "-m", module]
        done = subprocess.run(command, cwd=workspace, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run_module


def outputs(prefix: Path) -> dict[str, object]:
    """What the steps wrote, by path; the executor's own records aside."""
    return {
        str(path.relative_to(prefix)): json.loads(path.read_text())
        for path in sorted(prefix.rglob("*.json"))
        if not path.name.startswith(".") and "experiments" not in path.relative_to(prefix).parts
    }


def test_hello_world(run: Callable[[str], str], tmp_path: Path) -> None:
    assert "4950" in run("experiments.tutorials.hello_world_remote")
    assert outputs(tmp_path / "prefix") == {
        "hello_world/data-d50b06/numbers.json": list(range(100)),
        "hello_world/stats-b5daf3/stats.json": {"max": 99, "min": 0, "sum": 4950},
    }


def test_a_fan_out_of_jobs_that_submit_jobs(run: Callable[[str], str], tmp_path: Path) -> None:
    assert f'"sum": {SUM}' in run("experiments.tutorials.fan_out")
    found = outputs(tmp_path / "prefix")
    # The paths too are the same on every backend: nothing of a backend goes into a version.
    assert found.pop("fan_out/sum-f1e781/sum.json") == {
        "sum": SUM,
        "jobs": {"outer": len(SHARDS), "inner": len(SHARDS)},
    }
    squares = {os.path.dirname(path): value for path, value in found.items() if path.endswith("/square.json")}
    shards = {os.path.dirname(path): value for path, value in found.items() if path.endswith("/shard.json")}
    assert sorted(squares.values()) == [i * i for i in SHARDS]
    assert shards == {folder: value + 1 for folder, value in squares.items()}
    assert len(found) == 2 * len(SHARDS)
    assert f'"sum": {SUM}' in run("experiments.tutorials.fan_out"), "the second run finds it done"
    assert outputs(tmp_path / "prefix")["fan_out/sum-f1e781/sum.json"] == {
        "sum": SUM,
        "jobs": {"outer": len(SHARDS), "inner": len(SHARDS)},
    }
