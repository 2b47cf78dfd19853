"""A client's session with a real controller, by gRPC and by socket: pushed ends, many calls a message, restarts."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fray.testing.waiting import eventually
from iris.client import IrisClient, JobAlreadyExists, JobPlan, SomeRefused, Stopped
from iris.client.connection.connection import Connection
from iris.client.connection.streams import GrpcStream, SocketStream
from iris.cluster.types import Entrypoint, JobState, ResourceSpec
from iris.rpc.auth import PrincipalKind
from iris.rpc.controller_address import ControllerAddress
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.protocol import SOCKET_NAME
from rigging.errors import DeadlineExceeded, NotFound, Unavailable
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
def real(tmp_path: Path) -> Iterator[RunningController]:
    with running_controller(tmp_path / "state", port=fixed_port()) as controller:
        yield controller


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


@pytest.fixture
def busy(real: RunningController, open_client: Open) -> IrisClient:
    """A client that has made so many calls that it has a session."""
    client = open_client(real)
    for number in range(3):
        client.submit(TRUE, f"first-{number}", SMALL)
    return client


@pytest.fixture
def worker(real: RunningController) -> Iterator[ScriptedWorker]:
    with ScriptedWorker(real.address, real.worker_token("w1")) as scripted:
        yield scripted


def plans(*names: str) -> list[JobPlan]:
    return [JobPlan(TRUE, name, resources=SMALL) for name in names]


def end(worker: ScriptedWorker, job_id: str, state: int = pb.TASK_STATE_SUCCEEDED, **fields: Any) -> None:
    worker.wait_for_start(f"{job_id}/0:0")
    worker.observe(f"{job_id}/0:0", state, **fields)


@both_ways
def test_waits_are_answered_by_push_without_a_call_each_until_the_client_is_shut_down(
    busy: IrisClient, worker: ScriptedWorker, monkeypatch: pytest.MonkeyPatch, by_socket: bool
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a wait made a call of its own")

    session = busy._calls._session[1]
    assert isinstance(session._stream, SocketStream if by_socket else GrpcStream)
    jobs = [busy.submit(TRUE, f"job-{number}", SMALL) for number in range(3)]
    with monkeypatch.context() as alone, ThreadPoolExecutor(1) as pool:
        alone.setattr("iris.client.connection.waiting.poll_jobs", refuse)
        waiting = pool.submit(busy.wait_jobs, jobs[:2], timeout=20)
        end(worker, jobs[0].job_id)
        end(worker, jobs[1].job_id, pb.TASK_STATE_FAILED, exit_code=3)
        assert jobs[0].wait(20).state is JobState.SUCCEEDED
        failed = jobs[1].wait(20, raise_on_failure=False)
        assert (failed.state, failed.exit_code) == (JobState.FAILED, 3)
        assert [status.job_id for status in waiting.result(20)] == [job.job_id for job in jobs[:2]]
    statuses = busy.wait_jobs(jobs[1:], any=True, timeout=20)
    assert [status.state.is_terminal for status in statuses] == [True, False]
    with pytest.raises(DeadlineExceeded, match=f"not ended within 0.05 s: {jobs[2].job_id} is"):
        busy.wait_jobs(jobs[1:], timeout=0.05)
    with ThreadPoolExecutor(1) as pool:
        endless = pool.submit(jobs[2].wait, timeout=20)
        eventually(lambda: session._waits, "it waits")
        busy.shutdown()
        with pytest.raises(Unavailable):
            endless.result(20)


def test_jobs_submitted_or_stopped_together_fail_each_for_itself(busy: IrisClient) -> None:
    busy.submit(TRUE, "taken", SMALL)
    with pytest.raises(
        SomeRefused, match=r"1 of 3 jobs were refused; the first \(place 1\): job /ann/taken"
    ) as refused:
        busy.submit_many(plans("a", "taken", "b"))
    assert isinstance(refused.value.errors[1], JobAlreadyExists)
    first, none, last = refused.value.jobs
    assert none is None
    assert (first.job_id, last.job_id) == ("/ann/a", "/ann/b")
    *stopped, nobody = busy.stop_many([first.job_id, last.job_id, "/ann/nobody"], "enough")
    assert stopped == [Stopped(("/ann/a",)), Stopped(("/ann/b",))]
    assert isinstance(nobody, NotFound)
    assert {status.state for status in busy.wait_jobs([first, last], timeout=20)} == {JobState.KILLED}


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
