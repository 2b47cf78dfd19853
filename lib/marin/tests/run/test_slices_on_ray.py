"""A step on a TPU slice of four hosts, on a real Ray cluster whose nodes have what those of TPU VMs have."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.testing.ray_harness import RayCluster

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.e2e, pytest.mark.timeout(900)]

SCRIPT = """
import json, os, sys
from dataclasses import dataclass
from fray import ResourceConfig
from fray.replica import replica_index
from marin.execution import ExecutorStep, executor_main, this_output_path
from marin.execution.jobs.remote import remote

@dataclass(frozen=True)
class Config:
    output_path: str

def train(config):
    import ray
    own = ray.get_runtime_context().get_node_id()
    node = next(node for node in ray.nodes() if node["NodeID"] == own)
    (slice_name,) = [name for name in node["Resources"] if name.startswith("slice-")]
    seat = {"slice": slice_name, "node": own, "TPU": ray.get_runtime_context().get_assigned_resources().get("TPU")}
    with open(f"{config.output_path}/host-{replica_index()}.json", "w") as file:
        json.dump(seat, file)

slice_of_four = ResourceConfig.with_tpu("v4-32", cpu=1, ram="64m", disk="1m")
step = ExecutorStep(name="train", fn=remote(train, resources=slice_of_four), config=Config(this_output_path()))
executor_main(steps=[step])
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """A head, a slice of four hosts, and two hosts of another slice, which has lost its others."""

    def host(name: str, index: int) -> dict[str, float]:
        return {"TPU": 4, name: 1, **({"TPU-v4-32-head": 1} if index == 0 else {})}

    nodes = {
        f"{name}-{index}": host(name, index)
        for name, count in (("slice-a", 2), ("slice-b", 4))
        for index in range(count)
    }
    with RayCluster(cpus=4).running(nodes) as cluster:
        yield cluster


def test_a_step_has_one_task_on_each_host_of_one_slice(cluster: RayCluster, tmp_path: Path) -> None:
    script = tmp_path / "experiment.py"
    script.write_text("import os\nos.environ['FRAY_CLIENT'] = 'ray'\n" + SCRIPT)
    prefix = tmp_path / "prefix"
    done = subprocess.run(
        [sys.executable, str(script), "--prefix", str(prefix)],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seats = [json.loads(path.read_text()) for path in sorted(prefix.glob("train-*/host-*.json"))]
    assert [seat["TPU"] for seat in seats] == [4, 4, 4, 4]
    assert {seat["slice"] for seat in seats} == {"slice-b"}
    assert len({seat["node"] for seat in seats}) == 4
