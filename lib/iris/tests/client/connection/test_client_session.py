"""A client's session with a real controller, by gRPC and by socket: pushed ends, many calls a message, restarts."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from iris.client import IrisClient, JobPlan
from iris.client.connection.connection import Connection
from iris.cluster.types import Entrypoint, JobState, ResourceSpec
from iris.rpc.auth import PrincipalKind
from iris.rpc.controller_address import ControllerAddress
from iris.rpc.protocol import SOCKET_NAME
from support.iris.controller import RunningController, running_controller
from support.iris.controller_process import fixed_port
from support.iris.worker import ScriptedWorker, succeed_at_once

TRUE = Entrypoint.from_command("true")
SMALL = ResourceSpec(cpu=0.001, memory="1MB", disk="1MB")

pytestmark = pytest.mark.process

Open = Callable[..., IrisClient]
both_ways = pytest.mark.parametrize("by_socket", [False, True], ids=["grpc", "socket"])


@pytest.fixture
def by_socket() -> bool:
    """Whether clients are told of the controller's socket."""
    return True


@pytest.fixture
def open_client(by_socket: bool) -> Iterator[Open]:
    made: list[IrisClient] = []

    def opened(controller: RunningController, user: str = "ann") -> IrisClient:
        token = controller.token(PrincipalKind.USER, user)
        socket = str(controller.config.state_dir / SOCKET_NAME) if by_socket else ""
        where = ControllerAddress(str(controller.address), token, socket)
        made.append(IrisClient(Connection(lambda _: where, reconnect_timeout=30), user=user))
        return made[-1]

    yield opened
    for client in made:
        client.shutdown()


def plans(*names: str) -> list[JobPlan]:
    return [JobPlan(TRUE, name, resources=SMALL) for name in names]


@both_ways
def test_open_waits_and_submissions_survive_a_restart_of_the_controller(tmp_path: Path, open_client: Open) -> None:
    port = fixed_port()
    with ThreadPoolExecutor(2) as pool:
        with running_controller(tmp_path / "state", port=port) as first:
            client = open_client(first)
            job = client.submit_many(plans("lasting", "other"))[0]
            waiting = pool.submit(job.wait, timeout=30)
            # Whether the wait has begun or not makes no difference.
            first.crash()
        submitting = pool.submit(client.submit, TRUE, "meanwhile", SMALL)
        with running_controller(tmp_path / "state", port=port) as second:
            assert submitting.result(20).job_id == "/ann/meanwhile"
            with ScriptedWorker(second.address, second.worker_token("w1"), script=succeed_at_once):
                assert waiting.result(20).state is JobState.SUCCEEDED
