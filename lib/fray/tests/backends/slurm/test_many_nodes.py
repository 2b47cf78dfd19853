"""Gangs on a hundred nodes of a real Slurm, all of them on this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.backends.slurm import SlurmClient
from fray.backends.slurm.address import SlurmAddress
from fray.backends.slurm.job import SlurmJob
from fray.testing.waiting import eventually
from fray.types import Entrypoint, JobRequest, JobStatus, ResourceConfig
from support.slurm.cluster import CPUS, SlurmCluster, running_slurm

pytestmark = pytest.mark.soak
NODES = 100
LONG = 120.0
GANG = ResourceConfig.with_cpu(cpu=CPUS, ram="64m", replicas=NODES)


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with running_slurm(NODES) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: SlurmCluster, tmp_path: Path) -> Iterator[SlurmClient]:
    with SlurmClient(SlurmAddress("main", directory=tmp_path / "shared")) as client:
        yield client
    cluster.run("scancel", "--me")
    eventually(lambda: not cluster.run("squeue", "-h"), "no job is left", LONG)


def shell(client: SlurmClient, script: str) -> SlurmJob:
    job = client.submit(JobRequest("gang", Entrypoint.from_binary("sh", ["-c", script]), GANG))
    assert isinstance(job, SlurmJob)
    return job


def test_a_gang_has_a_replica_on_every_node(client: SlurmClient) -> None:
    job = shell(client, "echo $SLURMD_NODENAME $SLURM_PROCID")
    assert job.wait(LONG) is JobStatus.SUCCEEDED
    logs = job.replica_logs()
    assert {index: log.split()[1] for index, log in logs.items()} == {index: str(index) for index in range(NODES)}
    assert {log.split()[0] for log in logs.values()} == {f"node{number}" for number in range(1, NODES + 1)}


def test_a_gang_that_lost_a_node_restarts_whole(client: SlurmClient, cluster: SlurmCluster, tmp_path: Path) -> None:
    job = shell(client, f"echo began; test -e {tmp_path}/go || sleep 1000")
    eventually(lambda: len(job.replica_logs()) == NODES, "all replicas run", LONG)
    cluster.run("scontrol", "update", "NodeName=node50", "State=DOWN", "Reason=test")
    cluster.run("scontrol", "update", "NodeName=node50", "State=RESUME")
    Path(tmp_path, "go").touch()
    assert job.wait(LONG) is JobStatus.SUCCEEDED
    assert [log.count("began") for log in job.replica_logs().values()] == [2] * NODES


def test_a_stopped_gang_runs_nowhere(client: SlurmClient, cluster: SlurmCluster) -> None:
    job = shell(client, "exec sleep 1000")
    eventually(lambda: len(cluster.pids("sleep")) == NODES, "all replicas run", LONG)
    job.terminate()
    assert job.wait(LONG, raise_on_failure=False) is JobStatus.STOPPED
    eventually(lambda: not cluster.run("squeue", "--noheader"), "Slurm has no job", LONG)
    assert not cluster.pids("sleep")
