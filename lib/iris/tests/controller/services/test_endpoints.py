"""Endpoints over real gRPC: bound to live attempts, resolved by job tree, watched without polling."""

import asyncio
import queue
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from iris.client import EndpointRegistry, EndpointResolver, EndpointSet
from iris.client.connection.connection import Connection
from iris.client.job_env import JobEnv
from iris.controller.services.endpoints import EndpointService
from iris.rpc import endpoints_pb2, endpoints_pb2_grpc
from iris.rpc import iris_pb2 as pb
from iris.rpc.auth import PrincipalKind
from iris.rpc.controller_address import ControllerAddress
from iris.rpc.protocol import call_metadata
from rigging.errors import Denied, InvalidRequest
from support.iris.controller import RunningController
from support.iris.worker import ScriptedWorker

WAIT_S = 10.0


class Task:
    """The client half of one attempt."""

    def __init__(self, controller: RunningController, attempt_id: str) -> None:
        job_id = attempt_id.rpartition("/")[0]
        self.where = ControllerAddress(str(controller.address), controller.attempt_token(attempt_id))
        self.connection = Connection(lambda _: self.where)
        job = JobEnv(str(controller.address), job_id, attempt_id.partition(":")[0], attempt_id, "w1", "")
        self.registry = EndpointRegistry(self.connection, job)
        self.resolver = EndpointResolver(self.connection, job_id)


@pytest.fixture
def task(controller: RunningController) -> Iterator[Any]:
    made: list[Task] = []

    def make(attempt_id: str) -> Task:
        made.append(Task(controller, attempt_id))
        return made[-1]

    yield make
    for one in made:
        one.connection.close()


def running(user: Any, worker: ScriptedWorker, job_id: str, **spec: Any) -> None:
    user.submit(job_id, cpu_millis=10, memory_bytes=1, **spec)
    for index in range(spec.get("replicas", 1)):
        worker.wait_for_start(f"{job_id}/{index}:0")


def user_resolver(controller: RunningController, namespace: str = "") -> tuple[Connection, EndpointResolver]:
    """Of the user, who may look on when a job has ended."""
    connection = Connection(lambda _: ControllerAddress(str(controller.address), controller.user_token))
    return connection, EndpointResolver(connection, namespace)


def follow(resolver: EndpointResolver, *args: Any, **kwargs: Any) -> "queue.SimpleQueue[EndpointSet]":
    found: queue.SimpleQueue[EndpointSet] = queue.SimpleQueue()

    def watch() -> None:
        try:
            for endpoints in resolver.watch(*args, **kwargs):
                found.put(endpoints)
        except Exception:  # the connection is closed at the end of the test
            return

    threading.Thread(target=watch, daemon=True).start()
    return found


def test_an_endpoint_goes_with_its_attempt_and_the_watch_says_so(
    controller: RunningController, user: Any, worker: ScriptedWorker, task: Any
) -> None:
    running(user, worker, "/ann/a", max_retries_failure=1)
    first = task("/ann/a/0:0")
    connection, resolver = user_resolver(controller)
    seen = follow(resolver, "/ann/a/server")
    assert seen.get(timeout=WAIT_S) == EndpointSet(())
    endpoint = first.registry.register("server", "host:1", {"role": "primary"})
    assert (endpoint.name, endpoint.metadata) == ("/ann/a/server", {"role": "primary"})
    other = first.registry.register("/ann/a/other", "host:3")
    assert first.resolver.resolve("other") == [other]
    assert first.resolver.list("/ann/a/") == [endpoint, other]
    first.registry.unregister("other")
    assert first.resolver.resolve("other") == []
    assert seen.get(timeout=WAIT_S).endpoints == (endpoint,)
    worker.observe("/ann/a/0:0", pb.TASK_STATE_FAILED, exit_code=1, failure=pb.FAILURE_KIND_USER)
    assert seen.get(timeout=WAIT_S) == EndpointSet(())
    worker.wait_for_start("/ann/a/0:1")
    with pytest.raises(Denied, match="attempt /ann/a/0:0 is over"):
        first.registry.register("server", "host:1")
    second = task("/ann/a/0:1").registry.register("server", "host:2")
    assert seen.get(timeout=WAIT_S).endpoints == (second,)
    worker.observe("/ann/a/0:1", pb.TASK_STATE_FAILED, exit_code=3, failure=pb.FAILURE_KIND_USER)
    last = seen.get(timeout=WAIT_S)
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


def test_the_actor_key_is_one_users(
    controller: RunningController, admin: Any, user: Any, worker: ScriptedWorker
) -> None:
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
def test_endpoints_are_asked_for_by_name_or_by_prefix(given: dict[str, str]) -> None:
    service = EndpointService(SimpleNamespace())

    async def watch() -> None:
        await anext(aiter(service.Watch(endpoints_pb2.WatchEndpointsRequest(**given), None)))

    async def rest() -> None:
        name = endpoints_pb2.ResolveEndpointRequest()
        await (service.Resolve(name, None) if not given else watch())

    for ask in (watch, rest):
        with pytest.raises(InvalidRequest, match="by name or by prefix, one of the two"):
            asyncio.run(ask())
