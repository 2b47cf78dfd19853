"""One experiment, unchanged, on fray's local backend, with its jobs on Iris, and as an Iris job itself."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

EXPERIMENT = """
import json, os, sys
from dataclasses import dataclass
from fray.types import ResourceConfig
from marin.execution import (
    ExecutorStep, executor_main, mirrored, output_path_of, progress, this_output_path, versioned
)
from marin.execution.jobs.remote import remote
from rigging.filesystem import open_url

SMALL = ResourceConfig.with_cpu(cpu=0.1, ram="64m")

@dataclass(frozen=True)
class Config:
    n: int
    output_path: str
    inputs: object = None
    fail: bool = False

def make(config):
    numbers = list(range(config.n))
    print("made", config.n, flush=True)
    progress(config.n, 3)
    for path in config.inputs or ():
        with open_url(path, "r") as file:
            numbers += json.load(file)
    if config.fail:
        print("a line of the step's own", flush=True)
        raise LookupError("no shards in the bucket")
    with open_url(os.path.join(config.output_path, "numbers.json"), "w") as file:
        json.dump(numbers, file)
    return {"count": len(numbers)}

def where(config):
    from rigging.filesystem import current_budget, marin_prefix
    assert marin_prefix() == os.environ["MARIN_PREFIX"]
    return {"limit_gb": current_budget().limit_bytes / 2**30, "path": config["data"]}

here = ExecutorStep(name="e/here", fn=make, config=Config(versioned(3), this_output_path()))
there = ExecutorStep(
    name="e/there",
    fn=remote(make, resources=SMALL),
    config=Config(versioned(2), this_output_path(), [here / "numbers.json"]),
)
also = ExecutorStep(
    name="e/also", fn=make, resources=SMALL,
    config=Config(1, this_output_path(), [output_path_of(there, "numbers.json"), here / "numbers.json"]),
)
budget = ExecutorStep(
    name="e/budget", fn=remote(where, resources=SMALL), config={"data": mirrored("raw/x", budget_gb=2), "after": also}
)
bad = ExecutorStep(name="e/bad", fn=remote(make, resources=SMALL), config=Config(1, this_output_path(), None, True))

if __name__ == "__main__":
    executor_main(steps=[budget] + ([bad] if os.environ.get("WITH_BAD") else []))
"""


@dataclass(frozen=True)
class Place:
    """Where the experiment is, and a cluster of its own."""

    workspace: Path
    state_dir: Path
    home: Path

    def run(self, backend: str, prefix: Path, **more: str) -> "subprocess.CompletedProcess[str]":
        """Run the experiment: `local`, `iris` (its jobs only) or `job` (itself too)."""
        outside = {k: v for k, v in os.environ.items() if not k.startswith(("IRIS_", "MARIN_", "FRAY_"))}
        environment = {
            **outside,
            "HOME": str(self.home),
            "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", os.path.expanduser("~/.cache/uv")),
            "IRIS_STATE_DIR": str(self.state_dir),
            "MARIN_PREFIX": str(prefix),
            **more,
        }
        command = [sys.executable, "experiment.py"]
        if backend == "job":
            variables = [word for name, value in more.items() for word in ("-e", name, value)]
            iris = str(Path(sys.executable).with_name("iris"))
            command = [iris, "job", "run", "-e", "MARIN_PREFIX", str(prefix), *variables, "--", *command]
        else:
            environment["FRAY_CLIENT"] = backend
        return subprocess.run(command, cwd=self.workspace, env=environment, capture_output=True, text=True, timeout=250)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("backends")
    found = Place(root / "workspace", root / "iris", root / "home")
    found.workspace.mkdir()
    found.home.mkdir()
    subprocess.run(["git", "init", "--quiet", str(found.workspace)], check=True)
    (found.workspace / "experiment.py").write_text(EXPERIMENT)
    yield found
    subprocess.run(
        [str(Path(sys.executable).with_name("iris")), "cluster", "stop", "--force"],
        env={**os.environ, "HOME": str(found.home), "IRIS_STATE_DIR": str(found.state_dir)},
        capture_output=True,
        timeout=60,
        check=False,
    )


def outputs(prefix: Path) -> dict[str, str]:
    """Every file below the outputs but leases and logs, by its relative path, the prefix taken out of the contents."""
    files = sorted(path for path in (prefix / "e").rglob("*") if path.is_file() and not is_of_an_attempt(path))
    return {str(path.relative_to(prefix)): path.read_text().replace(str(prefix), "PREFIX") for path in files}


def events_of(prefix: Path, kind: str) -> dict[str, dict[str, Any]]:
    """The last event of a kind of each step."""
    [log] = (prefix / "experiments").glob("*.events.jsonl")
    events = [json.loads(line) for line in log.read_text().splitlines()]
    return {event["name"]: event for event in events if event["event"] == kind}


def is_of_an_attempt(path: Path) -> bool:
    return ".lock" in path.name or path.name in (".log", ".error")


def said(prefix: Path) -> dict[str, list[str]]:
    """What the function of each step has printed, according to its log."""
    logs = sorted((prefix / "e").glob("*/.log"))
    lines = {path.parent.name.rpartition("-")[0]: path.read_text().splitlines() for path in logs}
    assert all(each[0].startswith("=== attempt 1, ") for each in lines.values())
    found = {name: [line for line in each if line.startswith(("made", "a line"))] for name, each in lines.items()}
    return {name: each for name, each in found.items() if each}


def test_paths_and_outputs_are_the_same_everywhere(place: Place, tmp_path: Path) -> None:
    found = {}
    for backend in ("local", "iris", "job"):
        result = place.run(backend, tmp_path / backend)
        assert result.returncode == 0, (backend, result.stdout, result.stderr)
        found[backend] = outputs(tmp_path / backend)
        assert said(tmp_path / backend) == {"here": ["made 3"], "there": ["made 2"], "also": ["made 1"]}, backend
        far = {
            name: (event["done"], event["total"])
            for name, event in events_of(tmp_path / backend, "step_progressed").items()
        }
        assert far == {"e/here": (3, 3), "e/there": (2, 3), "e/also": (1, 3)}, backend
        for name, event in events_of(tmp_path / backend, "step_ended").items():
            [attempt] = event["attempts"]
            if backend != "local" and name != "e/here":  # others may be too short to be measured
                assert attempt["peak_bytes"] > 1 << 20, (backend, name)
                assert attempt["cpu_seconds"] >= 0, (backend, name)
    local = found["local"]
    kept = {path.rpartition("-")[0]: json.loads(text) for path, text in local.items() if path.endswith("/.artifact")}
    assert kept == {
        "e/here": {"count": 3},
        "e/there": {"count": 5},
        "e/also": {"count": 9},
        "e/budget": {"limit_gb": 2.0, "path": "mirror://raw/x"},
    }
    assert {Path(path).name for path in local} == {".artifact", ".executor_info", ".executor_status", "numbers.json"}
    assert found["iris"] == local
    assert found["job"] == local


def test_a_job_that_fails_comes_back_with_its_words_and_its_log(place: Place, tmp_path: Path) -> None:
    result = place.run("iris", tmp_path / "p", WITH_BAD="1")
    assert result.returncode != 0
    assert "1 step(s) failed" in result.stderr
    assert "LookupError: no shards in the bucket" in result.stderr
    assert "iris job logs" in result.stderr
    [log] = (tmp_path / "p" / "experiments").glob("*.events.jsonl")
    events = [json.loads(line) for line in log.read_text().splitlines()]
    [end] = [event for event in events if event.get("status") == "failed"]
    assert end["name"] == "e/bad"
    assert "LookupError: no shards in the bucket" in end["error"]
    assert "e-bad-" in end["log"]
    [status] = (tmp_path / "p" / "e").glob("bad-*/.executor_status")
    assert status.read_text() == "FAILED"
    assert said(tmp_path / "p")["bad"][:2] == ["made 1", "a line of the step's own"]
    [error] = (tmp_path / "p" / "e").glob("bad-*/.error")
    assert "LookupError: no shards in the bucket" in error.read_text()
