"""The project's own cluster file, run on this machine: jobs go where they would go on the real cluster."""

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.local.state import HostPaths, wait_unlocked
from rigging.testing import eventually

from .conftest import IRIS, REPOSITORY, Cluster, Result

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

FILE = REPOSITORY / "infra" / "clusters" / "marin.yaml"
# As people who come from the ancestor type it.
COMMAND = """
uv run iris --cluster=marin job run --cpu=1 --memory=2G --extra=cpu \\
  -- python -m experiments.tutorials.hello_world
"""


def stop(cluster: Cluster, name: str = "marin") -> None:
    cluster.iris(f"--cluster={name}", "cluster", "stop", "--force")


@pytest.fixture(scope="module")
def marin(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster of the file runs; the embedded one does not."""
    started = cluster.iris("cluster", "start", "--local", "--config", str(FILE))
    assert started.code == 0, started.text
    assert "cluster marin is ready" in started.err
    assert "tpu_v5e-preemptible_128-us-west4-a: a slice has 32 hosts; at most 16 run here" in started.err
    yield cluster
    stop(cluster)


def run(cluster: Cluster, *words: str) -> Result:
    return cluster.iris("--cluster=marin", "job", "run", "--no-workspace", *words)


def workers(cluster: Cluster) -> list[dict]:
    return json.loads(cluster.iris("--cluster=marin", "cluster", "status", "--json").out)["workers"]


def test_the_command_works_word_for_word(marin: Cluster):
    # The environment of the tests is what `uv run` would make.
    environment = {**marin.environment(), "UV_NO_SYNC": "1", "PATH": f"{IRIS.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", COMMAND], cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "the local run of cluster marin" in done.stderr
    assert json.loads((marin.storage / "hello_world/stats-b5daf3/stats.json").read_text())["sum"] == 4950


def test_a_gang_runs_on_one_slice_of_the_region_that_is_started_for_it(marin: Cluster):
    done = run(
        marin, *shlex.split("--tpu v4-16 --cpu 32 --memory 128GB --region us-central2 --job-name gang --"),
        "sh", "-c", "echo host $IRIS_TASK_INDEX is $IRIS_WORKER_ID",
    )  # fmt: skip
    assert done.code == 0, done.text
    for number in range(2):
        assert f"host {number} is tpu-v4-16-us-central2-b-0-w{number}@local" in done.out
    [first, second] = [worker for worker in workers(marin) if "v4-16" in worker["worker_id"]]
    assert first["attributes"]["tpu-name"] == second["attributes"]["tpu-name"] == "tpu-v4-16-us-central2-b-0"
    assert {first["attributes"]["region"], first["device"]} == {"us-central2", "4 tpu v4-16"}
    shown = marin.iris("--cluster=marin", "cluster", "status")
    assert "tpu-v4-16-us-central2-b-0  tpu-v4-16-us-central2-b  2/2" in shown.out
    lines = [line.split() for line in shown.out.splitlines()]
    assert ["tpu-v4-16-us-central2-b", "1/8", "2", "4", "tpu", "v4-16", "us-central2-b", "no"] in lines
    assert ["tpu-v5p-8-us-east5-a", "0/32", "1", "4", "tpu", "v5p-8", "us-east5-a", "yes"] in lines


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


def test_an_experiment_on_a_small_cpu_host_trains_on_a_whole_slice(marin: Cluster, tmp_path: Path):
    (tmp_path / "experiment.py").write_text(EXPERIMENT)
    words = ("--workspace", str(tmp_path), "--cpu=1", "--memory=2G", "--", "python", "experiment.py")
    done = marin.iris(f"--config={FILE}", "job", "run", *words, cwd=tmp_path)
    assert done.code == 0, done.text
    [output] = marin.storage.glob("train-*")
    # fray's own defaults for a TPU host, 32 cores and 128 GB, fit: hosts offer what the file says.
    assert {path.name: path.read_text() for path in output.glob("tpu-*")} == {
        f"tpu-v4-16-us-central2-b-0-w{number}@local": "''" for number in range(2)
    }


def test_a_job_learns_the_regions_of_slices_that_are_not_there_yet(marin: Cluster):
    ask = (
        "from marin.execution.executor import infer_tpu_variant_regions_from_iris as regions; print(regions(['v5p-8']))"
    )
    done = run(marin, "--", "python", "-c", ask)
    assert (done.code, done.out.strip()) == (0, "['us-east5']"), done.text


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--tpu v5p-64 --region us-central2", "there are tpu v4-16, tpu v4-8"),
        ("--region mars-north1", "no worker has region = mars-north1"),
        ("--cpu 500", "needs 500 cores; the largest worker"),
    ],
)
def test_what_the_real_cluster_could_never_run_is_refused(marin: Cluster, words: str, why: str):
    refused = run(marin, *words.split(), "--", "true")
    assert refused.code == 3
    assert why in refused.err


def test_budgets_of_the_file_hold(marin: Cluster):
    found = json.loads(marin.iris("--cluster=marin", "user", "budget", "list", "--json").out)
    assert {(budget["user"], budget["max_weight"]) for budget in found} == {("data-team", 20000), ("guest", 500)}


def test_the_embedded_cluster_is_another_one(marin: Cluster):
    assert marin.iris("cluster", "status").code == 5, "it does not run"
    again = marin.iris("--cluster=marin", "cluster", "start", "--local")
    assert (again.code, "runs already" in again.err) == (0, True), again.text


def test_a_file_of_the_same_name_elsewhere_is_not_taken_for_it(marin: Cluster, tmp_path: Path):
    other = tmp_path / "marin.yaml"
    other.write_text(FILE.read_text())
    for words in (["cluster", "start", "--local"], ["job", "list"]):
        refused = marin.iris("--config", str(other), *words)
        assert refused.code == 3, refused.text
        assert str(FILE) in refused.err


def test_its_name_is_enough_where_the_file_is_not(marin: Cluster, tmp_path: Path):
    assert marin.iris("--cluster=marin", "job", "list", cwd=tmp_path).code == 0
    unknown = marin.iris("--cluster=martian", "job", "list", cwd=tmp_path)
    assert unknown.code == 4, unknown.text


SMALL = """
scale_groups:
  c:
    resources: {cpu: 4, ram: 4GB, disk: 4GB}
    min_slices: 1
    max_slices: 2
"""


@pytest.fixture
def small(own_cluster: Cluster, tmp_path: Path) -> Iterator[tuple[Cluster, Path]]:
    """A cluster file with one host, which does not run yet."""
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    yield own_cluster, file
    own_cluster.iris("--config", str(file), "cluster", "stop", "--force")


def test_a_cluster_that_nobody_has_started_says_how_to(small: tuple[Cluster, Path]):
    cluster, file = small
    for words in (["job", "list"], ["job", "run", "--no-workspace", "--", "true"], ["cluster", "status"]):
        refused = cluster.iris("--config", str(file), *words)
        assert refused.code == 5, refused.text
        assert f"iris cluster start --local --config {file}" in refused.err


def test_hosts_and_their_jobs_outlive_the_controller_and_a_killed_host_is_replaced(
    small: tuple[Cluster, Path], tmp_path: Path
):
    cluster, file = small
    of_file = ("--config", str(file))
    assert cluster.iris("cluster", "start", "--local", *of_file).code == 0
    state = cluster.state_dir.with_name("iris-clusters") / "small"
    host = HostPaths(state / "hosts" / "c-0-w0")
    go, marks = tmp_path / "go", tmp_path / "marks"
    os.mkfifo(go)
    script = f"echo started >> {marks}; read x < {go}; echo got $x"
    submitted = cluster.iris(
        *of_file, "job", "run", "--no-workspace", "--no-wait", "--job-name", "stays", "--", "sh", "-c", script
    )
    assert submitted.code == 0, submitted.text
    eventually(lambda: marks.exists() and marks.read_text(), "the task started")

    controller = int((state / "controller.lock").read_text())
    os.kill(controller, signal.SIGKILL)
    assert wait_unlocked(state / "controller.lock", timeout=10)
    worker = int(host.worker_lock.read_text())
    restarted = cluster.iris("cluster", "start", "--local", *of_file)
    assert restarted.code == 0, restarted.text
    assert int(host.worker_lock.read_text()) == worker, "the host was taken up"
    os.kill(worker, signal.SIGKILL)
    eventually(lambda: host.worker_lock.read_text().strip() not in ("", str(worker)), "another worker comes")

    go.write_text("on\n")
    done = cluster.iris(*of_file, "job", "logs", "-f", "stays")
    assert "got on" in done.out, done.text
    assert marks.read_text() == "started\n"
    stopped = cluster.iris(*of_file, "cluster", "stop")
    assert stopped.code == 0, stopped.text
    for lock in (host.worker_lock, host.guardian_lock, state / "controller.lock"):
        assert wait_unlocked(lock, timeout=10), "stopping stops all"
