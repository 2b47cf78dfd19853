"""Jobs on several TPU slices, on a real Iris cluster: workers on loopback stand in for the hosts of two slices."""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fray.backends.iris import IrisBackend
from fray.testing import LONG
from fray.types import Entrypoint, EnvironmentConfig, JobRequest, JobStatus, ResourceConfig
from iris.client import IrisClient
from iris.client.connection.discovery import cluster_at
from support.iris.controller import RunningController, running_controller

pytestmark = pytest.mark.process

HOST = """
import sys
from pathlib import Path
from iris.domain.resources import Device, Resources
from iris.rpc.controller_address import ControllerAddress
from iris.worker.app import WorkerConfig, run_worker

work_dir, address, token, name, number, own = sys.argv[1:]
config = WorkerConfig(
    Path(work_dir),
    f"{name}-{number}",
    capacity=Resources(1000, 2**30, 2**30, Device("tpu", "v4-16", 4)),
    attributes={"tpu-name": name, "tpu-worker-id": number, "iris-address": own},
)
sys.exit(run_worker(config, lambda: ControllerAddress(address, token)))
"""

TWO_SLICES = ResourceConfig.with_tpu("v4-16", slice_count=2, cpu=0.5, ram="64m", disk="1m")
SHOW = (
    'echo "$IRIS_WORKER_ID of slice $MEGASCALE_SLICE_ID/$MEGASCALE_NUM_SLICES'
    ' at $MEGASCALE_COORDINATOR_ADDRESS $MEGASCALE_PORT"'
)
ADDRESSES = {("a", 0): "127.0.0.2", ("a", 1): "127.0.0.3", ("b", 0): "127.0.0.4", ("b", 1): "127.0.0.5"}
SHOWN = [
    f"{name}-{number} of slice {index}/2 at {ADDRESSES['a', 0]}"
    for index, name in enumerate(("a", "b"))
    for number in range(2)
]


def places(lines: Iterable[str]) -> list[str]:
    """Return what tasks showed without the port of their coordinator, which they agree on."""
    parts = [line.rpartition(":") for line in lines]
    (port,) = {port for _, _, port in parts}
    assert len(set(port.split())) == 1
    return [place for place, _, _ in parts]


def start_host(controller: RunningController, work_dir: Path, name: str, number: int) -> "subprocess.Popen[bytes]":
    token = controller.worker_token(f"{name}-{number}")
    argv = [sys.executable, "-c", HOST, str(work_dir), str(controller.address), token, name, str(number)]
    argv.append(ADDRESSES[name, number])
    env = {**os.environ, "IRIS_ACTOR_HOST": ADDRESSES[name, number]}
    return subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IrisBackend]:
    """Slices `a` and `b` of two hosts each."""
    root = tmp_path_factory.mktemp("slices")
    with running_controller(root / "state") as controller:
        hosts = [start_host(controller, root / f"{name}{n}", name, n) for name in "ab" for n in range(2)]
        # Its workers are on this machine, so jobs can have the environment of this test.
        target = replace(cluster_at(str(controller.address), token=controller.user_token), same_machine=True)
        backend = IrisBackend(IrisClient.of(target))
        try:
            yield backend
        finally:
            backend.shutdown()
            for host in hosts:
                host.terminate()
            for host in hosts:
                host.wait(LONG)


@pytest.fixture
def environment(tmp_path: Path) -> EnvironmentConfig:
    return EnvironmentConfig(workspace=str(tmp_path))


def test_a_program_finds_the_other_slices(cluster: IrisBackend, environment: EnvironmentConfig) -> None:
    job = cluster.submit(JobRequest("program", Entrypoint.from_binary("sh", ["-c", SHOW]), TWO_SLICES, environment))
    assert job.wait(LONG) is JobStatus.SUCCEEDED
    # gRPC may have words of its own in between.
    assert places(sorted(line for line in job.logs().splitlines() if " of slice " in line)) == SHOWN


def test_a_callable_finds_them_restarted(cluster: IrisBackend, environment: EnvironmentConfig, tmp_path: Path) -> None:
    def show(failed: str, script: str) -> None:
        from fray.replica import replica_index

        if replica_index() == 3 and not os.path.exists(failed):
            open(failed, "w").close()
            raise OSError("the first time")
        subprocess.run(["sh", "-c", f"{script} >> {failed}.$IRIS_TASK_INDEX"], check=True)

    entrypoint = Entrypoint.from_callable(show, [str(tmp_path / "failed"), SHOW])
    job = cluster.submit(JobRequest("callable", entrypoint, TWO_SLICES, environment, max_retries_failure=1))
    assert job.wait(LONG) is JobStatus.SUCCEEDED
    assert places((tmp_path / f"failed.{index}").read_text().splitlines()[-1] for index in range(4)) == SHOWN
