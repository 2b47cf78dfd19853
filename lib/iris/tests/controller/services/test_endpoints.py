"""Endpoints over real gRPC: bound to live attempts, resolved by job tree, watched without polling."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from iris.client import EndpointRegistry, EndpointResolver, EndpointSet
from iris.client.connection.connection import Connection
from iris.client.job_env import JobEnv
from iris.controller.services.endpoints import EndpointService
from iris.rpc.auth import PrincipalKind
from iris.rpc.controller_address import ControllerAddress
from iris.rpc.generated import endpoints_pb2, endpoints_pb2_grpc
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.protocol import call_metadata
from rigging.errors import Denied, InvalidRequest
from support.iris.controller import RunningController
from support.iris.worker import ScriptedWorker


class Task:
    """The client half of one attempt."""

    def __init__(self, controller: RunningController, attempt_id: str) -> None:
        job_id = attempt_id.rpartition("/")[0]
        where = ControllerAddress(str(controller.address), controller.attempt_token(attempt_id))
        self.connection = Connection(lambda _: where)
        job = JobEnv(str(controller.address), job_id, attempt_id.partition(":")[0], attempt_id, "w1", "")
        self.registry = EndpointRegistry(self.connection, job)
        self.resolver = EndpointResolver(self.connection, job_id)


@pytest.fixture
def task(controller: RunningController) -> Iterator[Callable[[str], Task]]:
    with ExitStack() as opened:

        def make(attempt_id: str) -> Task:
            made = Task(controller, attempt_id)
            opened.callback(made.connection.close)
            return made

        yield make


def running(user: Any, worker: ScriptedWorker, job_id: str, **spec: Any) -> None:
    user.submit(job_id, cpu_millis=10, memory_bytes=1, **spec)
    worker.wait_for_start(f"{job_id}/0:0")


def test_an_endpoint_goes_with_its_attempt_and_the_watch_says_so(
    controller: RunningController, user: Any, worker: ScriptedWorker, task: Any
) -> None:
    running(user, worker, "/ann/a", max_retries_failure=1)
    first = task("/ann/a/0:0")
    # Of the user, who may look on when a job has ended.
    connection = Connection(lambda _: ControllerAddress(str(controller.address), controller.user_token))
    seen = iter(EndpointResolver(connection, "").watch("/ann/a/server"))
    assert next(seen) == EndpointSet(())
    endpoint = first.registry.register("server", "host:1", {"role": "primary"})
    assert (endpoint.name, endpoint.metadata) == ("/ann/a/server", {"role": "primary"})
    other = first.registry.register("/ann/a/other", "host:3")
    assert first.resolver.resolve("other") == [other]
    assert first.resolver.list("/ann/a/") == [endpoint, other]
    first.registry.unregister("other")
    assert first.resolver.resolve("other") == []
    assert next(seen).endpoints == (endpoint,)
    worker.observe("/ann/a/0:0", pb.TASK_STATE_FAILED, exit_code=1, failure=pb.FAILURE_KIND_USER)
    assert next(seen) == EndpointSet(())
    worker.wait_for_start("/ann/a/0:1")
    with pytest.raises(Denied, match="attempt /ann/a/0:0 is over"):
        first.registry.register("server", "host:1")
    second = task("/ann/a/0:1").registry.register("server", "host:2")
    assert next(seen).endpoints == (second,)
    worker.observe("/ann/a/0:1", pb.TASK_STATE_FAILED, exit_code=3, failure=pb.FAILURE_KIND_USER)
    last = next(seen)
    assert (last.endpoints, last.ended) == ((), True)
    assert last.ended_reason.startswith("job /ann/a failed: task 0 failed: exit code 3")
    connection.close()


@pytest.mark.parametrize(
    ("name", "error", "reason"),
    [
        ("a b", InvalidRequest, "cannot name an endpoint"),
        ("/ann/a/child/x", Denied, "may register names of that job and of those above"),
    ],
)
def test_a_name_that_is_not_the_tasks_own_is_refused(
    user: Any, worker: ScriptedWorker, task: Any, name: str, error: type[Exception], reason: str
) -> None:
    running(user, worker, "/ann/a")
    with pytest.raises(error, match=reason):
        task("/ann/a/0:0").registry.register(name, "host:1")


def test_actor_keys_are_a_users(controller: RunningController, admin: Any, user: Any, worker: ScriptedWorker) -> None:
    for job_id in ("/ann/a", "/ann/b", "/bob/a"):
        running(admin, worker, job_id)
    stub = endpoints_pb2_grpc.EndpointServiceStub(grpc.insecure_channel(str(controller.address)))

    def key(kind: PrincipalKind, name: str, user: str = "") -> bytes:
        metadata = call_metadata(controller.token(kind, name))
        return bytes(stub.ActorKey(endpoints_pb2.ActorKeyRequest(user=user), metadata=metadata).key)

    ann = key(PrincipalKind.JOB, "/ann/a")
    assert len(ann) == 32
    assert ann == key(PrincipalKind.JOB, "/ann/b") == key(PrincipalKind.USER, "ann")
    assert key(PrincipalKind.JOB, "/bob/a") != ann
    assert key(PrincipalKind.ADMIN, "root", "ann") == ann
    for kind, name in ((PrincipalKind.JOB, "/bob/a"), (PrincipalKind.USER, "bob")):
        with pytest.raises(grpc.RpcError, match="may not call actors of /ann: only user ann and admins may") as refused:
            key(kind, name, "ann")
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("given", [{}, {"name": "s", "prefix": "/ann/"}])
@pytest.mark.parametrize("method", ["Watch", "Resolve"])
def test_endpoints_are_asked_for_by_name_or_by_prefix(given: dict[str, str], method: str) -> None:
    service = EndpointService(SimpleNamespace())

    async def ask() -> None:
        if method == "Watch":
            await anext(aiter(service.Watch(endpoints_pb2.WatchEndpointsRequest(**given), None)))
        else:
            await service.Resolve(endpoints_pb2.ResolveEndpointRequest(), None)

    with pytest.raises(InvalidRequest, match="by name or by prefix, not both"):
        asyncio.run(ask())
