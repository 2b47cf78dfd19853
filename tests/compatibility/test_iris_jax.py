"""JAX over the tasks of a job, as a training library begins."""

import json
import sys

import pytest

from iris.client import JobFailedError
from iris.cluster.types import Entrypoint, EnvironmentSpec, ResourceSpec

FAKE_JAX = """
import glob, json, os, sys, time
from types import SimpleNamespace

def initialize(coordinator_address=None, num_processes=None, process_id=None):
    told = {"address": coordinator_address, "count": num_processes, "platforms": os.environ["JAX_PLATFORMS"]}
    with open(os.path.join(os.environ["NOTES"], f"{process_id}.json"), "w") as file:
        json.dump(told, file)
    # As JAX does: whoever left before the others came would take the coordinator's address along.
    while len(glob.glob(os.path.join(os.environ["NOTES"], "*.json"))) < num_processes:
        time.sleep(0.01)

distributed = SimpleNamespace(initialize=initialize)
"""

TRAIN = """
from iris.runtime.jax_init import initialize_jax
initialize_jax()
"""

ONLY_ONE_CALLS = """
from iris.client import iris_ctx
from iris.runtime.jax_init import initialize_jax
if iris_ctx().task_id.endswith("/1"):
    initialize_jax(poll_timeout=0.2)
"""


@pytest.fixture
def run(iris_client, tmp_path):
    """Run a script as a job with JAX's stand-in."""

    def submit(script, replicas):
        work = tmp_path / "work"
        work.mkdir(exist_ok=True)
        (work / "jax.py").write_text(FAKE_JAX)
        (work / "script.py").write_text(script)
        path = ":".join([str(work), *filter(None, sys.path)])
        variables = {"NOTES": str(tmp_path), "JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
        return iris_client.submit(
            Entrypoint.from_command(sys.executable, f"{work}/script.py"),
            "train",
            ResourceSpec(cpu=0.1, memory="256MB"),
            EnvironmentSpec(env_vars=variables),
            replicas=replicas,
        )

    return submit


@pytest.mark.process
@pytest.mark.compatible("initialize_jax(): coordinator, process count and process id in each task", since="0.1.0")
def test_the_tasks_of_a_job_are_one_jax_program(run, tmp_path):
    run(TRAIN, replicas=3).wait(timeout=90)
    notes = [json.loads((tmp_path / f"{index}.json").read_text()) for index in range(3)]
    assert [note["count"] for note in notes] == [3, 3, 3]
    (address,) = {note["address"] for note in notes}
    host, _, port = address.rpartition(":")
    assert host
    assert 0 < int(port) < 65536
    assert [note["platforms"] for note in notes] == ["cpu"] * 3


@pytest.mark.process
@pytest.mark.compatible("initialize_jax(poll_timeout=): an error where task 0 does not call it", since="0.1.0")
def test_a_task_does_not_wait_for_ever(run):
    with pytest.raises(JobFailedError) as failed:
        run(ONLY_ONE_CALLS, replicas=2).wait(timeout=90)
    assert "exit" in str(failed.value)
