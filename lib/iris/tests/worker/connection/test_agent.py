"""The worker, with real processes, against a real gRPC controller that hangs up, forgets and restarts on purpose."""

import pytest

from iris.domain.states import FailureKind, TaskState
from iris.rpc import iris_pb2 as pb
from iris.rpc.protocol import PROTOCOL_VERSION
from support.iris.worker_fixtures import FakeController, InProcessWorker, run_command

pytestmark = pytest.mark.process

JOB = "/user/job/0:0"


def sh(script: str, **options: object) -> pb.RunAttempts:
    return run_command("sh", "-c", script, **options)  # type: ignore[arg-type]


async def test_exit_code_output_and_forget(controller: FakeController, worker: InProcessWorker) -> None:
    (hello,) = controller.hellos
    assert (hello.worker_id, hello.protocol_version) == ("w1", PROTOCOL_VERSION)
    assert (hello.capacity.cpu_millis, dict(hello.attributes)) == (2000, {"os": "linux"})
    controller.send(run=[sh("echo out; echo err >&2; exit 3")])
    (end,) = await controller.until_ended(JOB)
    assert (end.state, end.exit_code, end.error) == (TaskState.FAILED, 3, "exit code 3")
    assert end.failure == FailureKind.USER
    assert controller.output(JOB) == b"out\n"
    assert controller.output(JOB, stderr=True) == b"err\n"
    assert any(worker.paths.logs.iterdir())
    controller.send(forget=[JOB])
    await controller.until(lambda: controller.applied_revision == 2)
    assert worker.supervisor.inventory() == []
    for directory in (worker.paths.logs, worker.paths.tokens, worker.paths.errors):
        assert list(directory.iterdir()) == []


async def test_cuts_during_output_lose_and_repeat_nothing(controller: FakeController, worker: InProcessWorker) -> None:
    controller.send(run=[run_command("seq", "-f", "%099.0f", "40000")])
    cuts = 0
    while not controller.has_ended(JOB):
        before = controller.log_bytes_received
        await controller.until(lambda b=before: controller.log_bytes_received > b or controller.has_ended(JOB))
        if cuts < 4 and not controller.has_ended(JOB):
            cuts += 1
            await controller.stop()
            await controller.start()
    assert cuts == 4
    assert controller.output(JOB) == b"".join(b"%099d\n" % i for i in range(1, 40_001))
