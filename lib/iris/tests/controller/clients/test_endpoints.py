"""Endpoints over real gRPC: bound to live attempts, resolved by job tree, watched without polling."""

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from iris.client import EndpointRegistry, EndpointResolver, EndpointSet
from iris.client.connection.connection import Connection
from iris.client.job_env import JobEnv
from iris.rpc import endpoints_pb2, endpoints_pb2_grpc
from iris.rpc import iris_pb2 as pb
from iris.rpc.auth import PrincipalKind
from iris.rpc.controller_address import ControllerAddress
from iris.rpc.protocol import call_metadata
from iris.testing.controller import RunningController, running_controller
from iris.testing.worker import ScriptedWorker
from rigging.errors import Denied, InvalidRequest

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


def test_a_name_is_looked_up_in_the_own_job_and_then_in_those_above(
    user: Any, worker: ScriptedWorker, task: Any
) -> None:
    for job_id in ("/ann/top", "/ann/top/left", "/ann/top/right"):
        running(user, worker, job_id)
    top, left, right = (task(f"{job_id}/0:0") for job_id in ("/ann/top", "/ann/top/left", "/ann/top/right"))
    assert right.resolver.resolve("db") == []
    registered = top.registry.register("db", "host:1", {"role": "primary"})
    assert registered.name == "/ann/top/db"
    assert right.resolver.resolve("db") == [registered]
    assert registered.metadata == {"role": "primary"}
    own = right.registry.register("db", "host:2")
    assert right.resolver.resolve("db") == [own]
    assert left.resolver.resolve("db") == [registered]
    assert left.resolver.resolve("/ann/top/right/db") == [own]
    left.registry.register("/ann/top/shared", "host:3")
    assert [endpoint.address for endpoint in right.resolver.resolve("shared")] == ["host:3"]
    assert {endpoint.name for endpoint in top.resolver.list("/ann/top/")} == {
        "/ann/top/db", "/ann/top/right/db", "/ann/top/shared",
    }  # fmt: skip
    right.registry.unregister("db")
    assert right.resolver.resolve("db") == [registered]


def test_the_replicas_of_a_job_answer_under_one_name(user: Any, worker: ScriptedWorker, task: Any) -> None:
    running(user, worker, "/ann/pool", replicas=3)
    for index in range(3):
        task(f"/ann/pool/{index}:0").registry.register("member", f"host:{index}")
    found = task("/ann/pool/0:0").resolver.resolve("member")
    assert [endpoint.address for endpoint in found] == ["host:0", "host:1", "host:2"]
    task("/ann/pool/1:0").registry.register("member", "host:9")
    found = task("/ann/pool/0:0").resolver.resolve("member")
    assert sorted(endpoint.address for endpoint in found) == ["host:0", "host:2", "host:9"]


def test_an_endpoint_goes_with_its_attempt_and_the_watch_says_so(
    controller: RunningController, user: Any, worker: ScriptedWorker, task: Any
) -> None:
    running(user, worker, "/ann/a", max_retries_failure=1)
    first = task("/ann/a/0:0")
    connection, resolver = user_resolver(controller)
    seen = follow(resolver, "/ann/a/server")
    assert seen.get(timeout=WAIT_S) == EndpointSet(())
    endpoint = first.registry.register("server", "host:1")
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


def test_endpoints_go_with_their_worker(controller: RunningController, user: Any, tmp_path: Path) -> None:
    with running_controller(tmp_path / "quick", heartbeat_interval_s=0.05, worker_timeout_s=0.3) as quick:
        with ScriptedWorker(quick.address, quick.worker_token("w1")) as worker:
            from_user = endpoints_pb2_grpc.EndpointServiceStub(grpc.insecure_channel(str(quick.address)))
            stubs = type(user)(_stubs(quick))
            stubs.submit("/ann/a", cpu_millis=10, memory_bytes=1)
            worker.wait_for_start("/ann/a/0:0")
            task = Task(quick, "/ann/a/0:0")
            watching, resolver = user_resolver(quick)
            seen = follow(resolver, prefix="/ann/a/")
            assert seen.get(timeout=WAIT_S) == EndpointSet(())
            task.registry.register("server", "host:1")
            assert len(seen.get(timeout=WAIT_S).endpoints) == 1
        assert seen.get(timeout=WAIT_S) == EndpointSet(())
        with pytest.raises(grpc.RpcError) as refused:
            from_user.List(endpoints_pb2.ListEndpointsRequest(prefix="/ann/a/"))
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        task.connection.close()
        watching.close()
        stubs.stubs.close()


def test_endpoints_and_watches_survive_a_restart_of_the_controller(tmp_path: Path, user: Any) -> None:
    with running_controller(tmp_path / "own") as first:
        stubs = type(user)(_stubs(first))
        stubs_worker = ScriptedWorker(first.address, first.worker_token("w1"))
        with stubs_worker as worker:
            for job_id in ("/ann/a", "/ann/b"):
                stubs.submit(job_id, cpu_millis=10, memory_bytes=1)
                worker.wait_for_start(f"{job_id}/0:0")
            task, other = Task(first, "/ann/a/0:0"), Task(first, "/ann/b/0:0")
            kept = task.registry.register("server", "host:1", {"a": "b"})
            other.registry.register("server", "host:2")
            whose = [ControllerAddress(str(first.address), first.user_token)]
            watching = Connection(lambda _: whose[0])
            seen = follow(EndpointResolver(watching, "/ann/a"), "server")
            assert seen.get(timeout=WAIT_S).endpoints == (kept,)
            first.crash()
    inventory = [pb.Observation(attempt_id=f"/ann/{job}/0:0", state=pb.TASK_STATE_RUNNING) for job in "ab"]
    with running_controller(tmp_path / "own") as second:
        task.where = ControllerAddress(str(second.address), task.where.token)
        other.where = ControllerAddress(str(second.address), other.where.token)
        whose[0] = ControllerAddress(str(second.address), second.user_token)
        assert [endpoint.address for endpoint in other.resolver.resolve("server")] == ["host:2"]
        with ScriptedWorker(second.address, second.worker_token("w1"), inventory=inventory) as worker:
            assert task.resolver.resolve("server") == [kept]
            again = task.registry.register("more", "host:3")
            assert task.resolver.list("/ann/a/") == [kept, again]
            worker.observe("/ann/a/0:0", pb.TASK_STATE_SUCCEEDED)
            last = seen.get(timeout=WAIT_S)
            assert (last.endpoints, last.ended) == ((), True)
    for connection in (task.connection, other.connection, watching):
        connection.close()


@pytest.mark.parametrize(
    ("name", "error", "reason"),
    [
        ("a b", InvalidRequest, "cannot name an endpoint"),
        ("/ann", InvalidRequest, "the form is /user/job"),
        ("/ann/other/x", Denied, "may register names of that job and of those above"),
        ("/bob/a/x", Denied, "may register names of that job and of those above"),
        ("/ann/a/child/x", Denied, "may register names of that job and of those above"),
    ],
)
def test_a_name_that_is_not_the_tasks_own_is_refused(
    user: Any, worker: ScriptedWorker, task: Any, name: str, error: type[Exception], reason: str
) -> None:
    running(user, worker, "/ann/a")
    with pytest.raises(error, match=reason):
        task("/ann/a/0:0").registry.register(name, "host:1")


def test_only_the_attempt_itself_registers_and_only_its_user_looks(
    controller: RunningController, user: Any, admin: Any, worker: ScriptedWorker, task: Any
) -> None:
    running(user, worker, "/ann/a", replicas=2)
    running(user, worker, "/ann/b")
    running(admin, worker, "/bob/c")
    task("/ann/a/0:0").registry.register("server", "host:1")
    foreign = task("/bob/c/0:0")
    with pytest.raises(Denied, match="/bob/c may not find endpoints of /ann/a/server: only user ann and admins may"):
        foreign.resolver.resolve("/ann/a/server")
    with pytest.raises(Denied, match="/bob/c may not find endpoints of /ann/a/: only user ann and admins may"):
        next(foreign.resolver.watch(prefix="/ann/a/"))
    stub = endpoints_pb2_grpc.EndpointServiceStub(grpc.insecure_channel(str(controller.address)))
    request = endpoints_pb2.RegisterEndpointRequest(name="x", attempt_id="/ann/a/0:0", address="h:1")
    others = ((PrincipalKind.JOB, "/ann/b"), (PrincipalKind.USER, "ann"), (PrincipalKind.WORKER, "w1"))
    tokens = [controller.token(kind, name) for kind, name in others]
    for token in (*tokens, controller.admin_token, controller.attempt_token("/ann/a/1:0")):
        with pytest.raises(grpc.RpcError) as refused:
            stub.Register(request, metadata=call_metadata(token))
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


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


def _stubs(controller: RunningController) -> Any:
    from iris.testing.controller import ControllerStubs

    return ControllerStubs(controller.address, call_metadata(controller.user_token))
