"""A cluster from its settings to its end on Google Cloud's APIs: `generate`, `up`, jobs on slices, preemption, `down`.

Nothing in Ray is replaced: its provider and its autoscaler speak TLS with a test server, whose VMs and slices are
machines in namespaces of their own. `docker`, `gcloud` and `sudo` on them are stand-ins, see marin.testing.machines.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from marin.testing.machines import PROJECT
from marin.testing.machines.cloud import LAPTOP_VARIABLES, Cloud, missing_for_cloud, running_cloud
from marin.testing.machines.operator import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.e2e,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(missing_for_cloud()), reason=f"NOT TESTED on Google's APIs: {missing_for_cloud()}"),
]

ROOT = Path(__file__).parents[5]
SETTINGS = """
default = "us-central2"
[clusters.us-central2]
project = "the-project"
image = "rayproject/ray:2.60.0-py311-cpu"
zone = "us-central2-b"
workers = [{ tpu = "v4-16", min = 1, max = 1 }, { tpu = "v4-8", max = 1 }]
"""
PROJECT_FILE = """
[project]
name = "p"
version = "1"
dependencies = []
"""
HOSTS_JOB = """
import os
import socket
import time

import ray

ray.init(logging_level=40)


def host():
    time.sleep(1)
    return socket.gethostname()[-4:], os.environ["MARIN_PREFIX"]


def hosts(count, resources):
    function = ray.remote(num_cpus=1, resources=resources)(host)
    return sorted(ray.get([function.remote() for _ in range(count)]))


print("the slice", hosts(2, {"TPU": 4}))
print("its first host", hosts(2, {"TPU-v4-16-head": 1}))
print("by demand", len(hosts(1, {"TPU": 4, "TPU-v4-8-head": 1})))
"""
GANG_JOB = """
import socket

from fray import Entrypoint, JobRequest, ResourceConfig, current_client
from fray.replica import replica_index


def member():
    print("member", replica_index(), socket.gethostname()[-4:], flush=True)


slices = ResourceConfig.with_tpu("v4-16", cpu=1, ram="64m", disk="1m")
job = current_client().submit(JobRequest("gang", Entrypoint.from_callable(member), slices))
print(job.wait())
print(job.logs())
"""
# Setup takes half a minute on an idle computer of two cores; on a busy one Ray may fail and begin anew after two more.
SETUP_SECONDS = 500


class Person:
    """At the laptop, in a project with settings of a cluster."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.laptop = cloud.machines.laptop

    def cluster(self, *words: str, seconds: float = 300) -> CompletedProcess[str]:
        done = self.laptop.run(
            "python", "-m", "marin.run.cluster", *words, seconds=seconds, cwd=PROJECT, **LAPTOP_VARIABLES
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def job(self, name: str) -> list[str]:
        words = ["python", "-m", "marin.run.ray_run", "--cluster", "marin-cluster", "--", "python", name]
        done = self.laptop.run(*words, seconds=SETUP_SECONDS, cwd=PROJECT, **LAPTOP_VARIABLES)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    def write_settings(self, text: str) -> None:
        (self.laptop.path(PROJECT) / "infra" / "clusters.toml").write_text(text)

    def ready(self) -> Counter[str]:
        """How many slices of each type Ray has set up."""
        found = [each for each in list(self.cloud.api.slices.values()) if each["state"] == "READY"]
        labels = [each["labels"] for each in found]
        return Counter(each["ray-user-node-type"] for each in labels if each.get("ray-node-status") == "up-to-date")

    def created(self) -> int:
        """How many slices were asked for."""
        return self._requests("POST")

    def looks(self) -> int:
        """How often slices were listed."""
        return self._requests("GET")

    def _requests(self, method: str) -> int:
        return sum(line.startswith(f"{method} ") and line.endswith("/nodes") for line in list(self.cloud.api.requests))


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    with running_cloud(tmp_path / "cloud", ROOT) as cloud:
        project = cloud.machines.laptop.path(PROJECT)
        (project / "infra").mkdir(parents=True)
        (project / "pyproject.toml").write_text(PROJECT_FILE)
        (project / "hosts.py").write_text(HOSTS_JOB)
        (project / "gang.py").write_text(GANG_JOB)
        shutil.copy(ROOT / "infra" / "marin-cluster-template.yaml", project / "infra")
        person = Person(cloud)
        person.write_settings(SETTINGS)
        yield person


def test_a_cluster_from_its_settings_to_its_end(person: Person) -> None:
    api = person.cloud.api
    person.cluster("generate")
    person.cluster("up", "--yes", seconds=800)
    (head,) = api.machines.values()
    assert head["labels"]["ray-node-type"] == "head"

    until(lambda: person.ready() == {"tpu_v4_16": 1}, "the minimum is there: one slice of two hosts", SETUP_SECONDS)
    lines = person.job("hosts.py")
    both = [("-w-0", "gs://marin-us-central2"), ("-w-1", "gs://marin-us-central2")]
    assert f"the slice {both}" in lines
    assert f"its first host {both[:1] * 2}" in lines
    assert "by demand 1" in lines
    assert person.ready() == {"tpu_v4_16": 1, "tpu_v4_8": 1}

    (lost,) = [name for name, found in api.slices.items() if found["acceleratorType"] == "v4-16"]
    api.preempt(lost)
    person.write_settings(SETTINGS.replace('"v4-8", max = 1', '"v4-8", max = 2'))
    person.cluster("generate")
    person.cluster("update")
    person.cluster("add-worker", "tpu_v4_8=2")
    everything = {"tpu_v4_16": 1, "tpu_v4_8": 2}
    until(lambda: person.ready() == everything, "a slice is replaced, and one added without work", SETUP_SECONDS)
    person.cluster("down", "--preempted-only")
    assert lost not in api.slices
    assert person.ready() == everything, "nothing else is removed"
    lines = person.job("gang.py")
    assert {"member 0 -w-0", "member 1 -w-1"} <= set(lines), lines

    launched, looks = person.created(), person.looks()
    until(lambda: person.looks() > looks + 10, "the autoscaler looks at its nodes", SETUP_SECONDS)
    assert person.created() == launched, "none is launched again and again, as autoscaler v2 does"
    assert len(person.cloud.vms()) == 5
    api.preempt(next(name for name, found in api.slices.items() if found["acceleratorType"] == "v4-8"))
    down = person.cluster("down", "--yes")
    assert "(PREEMPTED): deleting it" in down.stderr
    assert (api.machines, api.slices, person.cloud.vms()) == ({}, {}, [])
