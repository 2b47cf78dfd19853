"""Groups of actors on Iris: which endpoints are members, asked of a real controller."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.backends.iris.actor_handle import IrisActorRef
from fray.backends.iris.actors import IrisActorGroup
from fray.testing.waiting import eventually
from iris.client import IrisClient, IrisContext
from iris.client.job_env import JobEnv
from iris.rpc.auth import PrincipalKind
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.protocol import call_metadata
from rigging.errors import DeadlineExceeded
from support.iris.controller import ControllerStubs, RunningController, running_controller
from support.iris.worker import ScriptedWorker

JOB = "/ann/actor-x"


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[RunningController]:
    with running_controller(tmp_path / "state") as running:
        yield running


class Tasks:
    """Starts jobs, and registers endpoints as their tasks would."""

    def __init__(self, controller: RunningController, worker: ScriptedWorker) -> None:
        self._controller = controller
        self._worker = worker
        self._clients: list[IrisClient] = []

    def start(self, job_id: str, replicas: int) -> None:
        stubs = ControllerStubs(self._controller.address, call_metadata(self._controller.user_token))
        spec = pb.JobSpec(
            job_id=job_id,
            entrypoint=pb.Entrypoint(command=pb.Command(argv=["true"])),
            resources=pb.Resources(cpu_millis=10),
            replicas=replicas,
        )
        stubs.jobs.SubmitJob(pb.SubmitJobRequest(spec=spec))
        stubs.close()
        for index in range(replicas):
            self._worker.wait_for_start(f"{job_id}/{index}:0")

    def register(self, job_id: str, index: int, name: str) -> None:
        attempt = f"{job_id}/{index}:0"
        address = str(self._controller.address)
        job = JobEnv(address, job_id, attempt.partition(":")[0], attempt, "w1", "")
        IrisContext(job, self.client(PrincipalKind.JOB, job_id)).registry.register(name, "127.0.0.1:1")

    def client(self, kind: PrincipalKind = PrincipalKind.USER, name: str = "ann") -> IrisClient:
        token = self._controller.token(kind, name)
        self._clients.append(IrisClient.remote(str(self._controller.address), token=token))
        return self._clients[-1]

    def close(self) -> None:
        for client in self._clients:
            client.shutdown()


@pytest.fixture
def tasks(controller: RunningController) -> Iterator[Tasks]:
    with ScriptedWorker(controller.address, controller.worker_token("w1")) as worker:
        made = Tasks(controller, worker)
        yield made
        made.close()


def test_only_the_groups_own_actors_count(controller: RunningController, tasks: Tasks) -> None:
    tasks.start(JOB, replicas=2)
    tasks.start(f"{JOB}/actor-y", replicas=1)
    tasks.register(JOB, 0, "actor-0")
    tasks.register(f"{JOB}/actor-y", 0, "actor-1")
    tasks.register(JOB, 0, "actor-cache")
    tasks.register(JOB, 0, "actor-7")
    ref = IrisActorRef(str(controller.address), "", "", "ann", "x", 0, "C", frozenset(), True, 0)
    group = IrisActorGroup(tasks.client(), JOB, ref, 2)
    try:
        assert group.ready_count == 1
        assert len(group.wait_ready(1, timeout=10)) == 1
        with pytest.raises(DeadlineExceeded, match=r"actor group 'x': 1 of 2 actors ready"):
            group.wait_ready(2, timeout=0.1)
        assert [repr(handle) for handle in group.discover_new()] == ["<actor 'x' [0]>"]
        tasks.register(JOB, 1, "actor-1")
        assert len(group.wait_ready(2, timeout=10)) == 2
        eventually(lambda: group.ready_count == 2, "the second is there")
        assert [repr(handle) for handle in group.discover_new()] == ["<actor 'x' [1]>"]
    finally:
        group.end()
