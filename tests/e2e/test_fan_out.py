"""hello_world and a two-level fan-out with an actor: the same script, the same outputs, on every backend."""

import functools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fray.testing import BackendHarness

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

FRAY_BACKENDS = [
    "local",
    # A process that imports the experiment takes a third of a second; Iris shows the same in the fast tier.
    pytest.param("local-process", marks=pytest.mark.soak),
    "iris",
    # Each job of Ray takes half a second; its contract and test_ray_functions are in the fast tier.
    pytest.param("ray", marks=[pytest.mark.ray, pytest.mark.soak]),
    pytest.param(
        "support.slurm.harness:SlurmHarness",
        id="slurm",
        marks=pytest.mark.skipif(not shutil.which("slurmctld"), reason="NOT TESTED: slurmctld is not installed"),
    ),
]
HELLO_WORLD = "experiments.tutorials.hello_world_remote"
FAN_OUT = "experiments.tutorials.fan_out"
SUM_PATHS = {8: "fan_out/sum-a8531b", 50: "fan_out/sum-f1e781"}


def outputs(prefix: Path) -> dict[str, bytes]:
    """All files of all steps, the executor's own too, by path; where the prefix is they do not say."""
    return {
        str(path.relative_to(prefix)): path.read_bytes().replace(str(prefix).encode(), b"PREFIX")
        for path in sorted(prefix.rglob("*"))
        # Records of the run itself, and what steps print, have times and hosts.
        if path.is_file() and path.relative_to(prefix).parts[0] != "experiments" and path.name != ".log"
    }


@pytest.fixture(scope="module")
def expected(run_here: Callable[[str], Path]) -> Callable[[str], dict[str, bytes]]:
    """What an experiment makes in one process."""
    return functools.cache(lambda module: outputs(run_here(module)))


def test_hello_world(run: Callable[[str], str], tmp_path: Path, expected: Callable[[str], dict[str, bytes]]) -> None:
    assert "4950" in run(HELLO_WORLD)
    found = outputs(tmp_path / "prefix")
    assert found == expected(HELLO_WORLD)
    assert json.loads(found["hello_world/data-d50b06/numbers.json"]) == list(range(100))
    assert json.loads(found["hello_world/stats-b5daf3/stats.json"]) == {"max": 99, "min": 0, "sum": 4950}


@pytest.mark.parametrize("shards", [8, pytest.param(50, marks=pytest.mark.soak)])
def test_a_fan_out_of_jobs_that_submit_jobs(
    run: Callable[[str], str],
    run_here: Callable[[str], Path],
    fray_harness: BackendHarness,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shards: int,
) -> None:
    monkeypatch.setenv("FAN_OUT_SHARDS", str(shards))
    sums = {"sum": sum(i * i + 1 for i in range(shards)), "jobs": {"outer": shards, "inner": shards}}
    assert f'"sum": {sums["sum"]}' in run(FAN_OUT)
    found = outputs(tmp_path / "prefix")
    if fray_harness.capabilities.actors:  # the recorded config has the actor
        assert found == outputs(run_here(FAN_OUT)), "as in one process"
    assert json.loads(found[f"{SUM_PATHS[shards]}/sum.json"]) == sums
    squares = {os.path.dirname(path): json.loads(found[path]) for path in found if path.endswith("/square.json")}
    written = {os.path.dirname(path): json.loads(found[path]) for path in found if path.endswith("/shard.json")}
    assert sorted(squares.values()) == [i * i for i in range(shards)]
    assert written == {folder: value + 1 for folder, value in squares.items()}
    assert f'"sum": {sums["sum"]}' in run(FAN_OUT), "the second run finds it done"
    assert outputs(tmp_path / "prefix") == found
