"""The project's own cluster file, run on this machine: jobs go where they would go on the real cluster."""

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.iris.embedded_cluster import IRIS, REPOSITORY, Cluster, Result

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

FILE = REPOSITORY / "infra" / "clusters" / "marin.yaml"
# As people who come from the ancestor type it.
COMMAND = """
uv run iris --cluster=marin job run --cpu=1 --memory=2G --extra=cpu \\
  -- python -m experiments.tutorials.hello_world
"""


@pytest.fixture(scope="module")
def marin(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster of the file runs; the embedded one does not."""
    started = cluster.iris("cluster", "start", "--local", "--config", str(FILE))
    assert started.code == 0, started.text
    assert "cluster marin is ready" in started.err
    assert "tpu_v5e-preemptible_128-us-west4-a: a slice has 32 hosts; at most 16 run here" in started.err
    yield cluster
    cluster.iris("--cluster=marin", "cluster", "stop", "--force")


def run(cluster: Cluster, *words: str) -> Result:
    return cluster.iris("--cluster=marin", "job", "run", "--no-workspace", *words)


def test_the_command_works_word_for_word(marin: Cluster) -> None:
    # The environment of the tests is what `uv run` would make.
    environment = {**marin.environment(), "UV_NO_SYNC": "1", "PATH": f"{IRIS.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", COMMAND], cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "the local run of cluster marin" in done.stderr
    assert json.loads((marin.storage / "hello_world/stats-b5daf3/stats.json").read_text())["sum"] == 4950


def test_a_gang_runs_on_one_slice_of_the_region_that_is_started_for_it(marin: Cluster) -> None:
    words = shlex.split("--tpu v4-16 --cpu 32 --memory 128GB --region us-central2 --job-name gang --")
    done = run(marin, *words, "sh", "-c", "echo host $IRIS_TASK_INDEX is $IRIS_WORKER_ID")
    assert done.code == 0, done.text
    for number in range(2):
        assert f"host {number} is tpu-v4-16-us-central2-b-0-w{number}@local" in done.out
    workers = json.loads(marin.iris("--cluster=marin", "cluster", "status", "--json").out)["workers"]
    [first, second] = [worker for worker in workers if "v4-16" in worker["worker_id"]]
    assert first["attributes"]["tpu-name"] == second["attributes"]["tpu-name"] == "tpu-v4-16-us-central2-b-0"
    assert {first["attributes"]["region"], first["device"]} == {"us-central2", "4 tpu v4-16"}
    shown = marin.iris("--cluster=marin", "cluster", "status")
    assert "tpu-v4-16-us-central2-b-0  tpu-v4-16-us-central2-b  2/2" in shown.out
    lines = [line.split() for line in shown.out.splitlines()]
    assert ["tpu-v4-16-us-central2-b", "1/8", "2", "4", "tpu", "v4-16", "us-central2-b", "no"] in lines
    assert ["tpu-v5p-8-us-east5-a", "0/32", "1", "4", "tpu", "v5p-8", "us-east5-a", "yes"] in lines


def test_a_job_learns_the_regions_of_slices_that_are_not_there_yet_and_budgets_hold(marin: Cluster) -> None:
    ask = (
        "from marin.execution.executor import infer_tpu_variant_regions_from_iris as regions; print(regions(['v5p-8']))"
    )
    done = run(marin, "--", "python", "-c", ask)
    assert (done.code, done.out.strip()) == (0, "['us-east5']"), done.text
    found = json.loads(marin.iris("--cluster=marin", "user", "budget", "list", "--json").out)
    assert {(budget["user"], budget["max_weight"]) for budget in found} == {("data-team", 20000), ("guest", 500)}


def test_a_cluster_is_known_by_its_file_or_its_name(marin: Cluster, tmp_path: Path) -> None:
    assert marin.iris("cluster", "status").code == 5, "the embedded cluster does not run"
    again = marin.iris("--cluster=marin", "cluster", "start", "--local")
    assert (again.code, "runs already" in again.err) == (0, True), again.text
    other = tmp_path / "marin.yaml"
    other.write_text(FILE.read_text())
    for words in (["cluster", "start", "--local"], ["job", "list"]):
        refused = marin.iris("--config", str(other), *words)
        assert refused.code == 3, refused.text
        assert str(FILE) in refused.err
    other.unlink()
    assert marin.iris("--cluster=marin", "job", "list", cwd=tmp_path).code == 0
    assert (
        "no machine is deleted here" in marin.iris("--cluster=marin", "cluster", "stop", "--dry-run", cwd=tmp_path).err
    )
    assert marin.iris("--cluster=martian", "job", "list", cwd=tmp_path).code == 4
    assert marin.iris("--cluster=martian", "cluster", "stop", cwd=tmp_path).code == 4


EXPERIMENT = """
import dataclasses, os
from fray.cluster import ResourceConfig
from marin.execution.executor import ExecutorStep, executor_main, this_output_path
from marin.execution.remote import remote

@dataclasses.dataclass
class Config:
    out: str

def train(config):
    os.makedirs(config.out, exist_ok=True)
    with open(f"{config.out}/{os.environ['IRIS_WORKER_ID']}", "w") as file:
        file.write(repr(os.environ.get("JAX_PLATFORMS")))

step = ExecutorStep("train", remote(train, resources=ResourceConfig.with_tpu("v4-16")), Config(this_output_path()))
if __name__ == "__main__":
    executor_main(steps=[step])
"""


def test_an_experiment_on_a_small_cpu_host_trains_on_a_whole_slice(marin: Cluster, tmp_path: Path) -> None:
    (tmp_path / "experiment.py").write_text(EXPERIMENT)
    words = ("--workspace", str(tmp_path), "--cpu=1", "--memory=2G", "--", "python", "experiment.py")
    done = marin.iris(f"--config={FILE}", "job", "run", *words, cwd=tmp_path)
    assert done.code == 0, done.text
    [output] = marin.storage.glob("train-*")
    # fray's own defaults for a TPU host, 32 cores and 128 GB, fit: hosts offer what the file says.
    assert {path.name: path.read_text() for path in output.glob("tpu-*")} == {
        f"tpu-v4-16-us-central2-b-0-w{number}@local": "''" for number in range(2)
    }
