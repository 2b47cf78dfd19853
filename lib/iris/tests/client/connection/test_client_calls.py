"""What each call of a client asks of the cluster, and what it makes of the answer."""

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from iris.client import client as client_module
from iris.client.client import IrisClient
from iris.client.connection.connection import Connection
from iris.client.connection.discovery import ClusterTarget
from iris.client.endpoints import EndpointRegistry, EndpointResolver
from iris.client.job_env import JobEnv
from iris.cluster.types import JobState, TaskState
from iris.rpc import endpoints_pb2
from iris.rpc import iris_pb2 as pb
from iris.rpc.controller_address import ControllerAddress
from iris.testing.rpc_error import FakeRpcError
from rigging.errors import Denied, InvalidRequest, NotFound

JOB = JobEnv("h:1", "/ann/a", "/ann/a/0", "/ann/a/0:1", "w", "")


class Cluster:
    """A connection on which every call has the answer that the test gives it; keeps what was asked, and how."""

    timeout = 12.0
    metadata = (("k", "v"),)
    lends = False
    address = "h:1"

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Any, float, bool]] = []
        self.jobs = self.cluster = self.endpoints = self
        self.closed = False
        self._retry = True

    ask = Connection.ask

    def run(self, call: Callable[["Cluster"], Any], *, retry: bool = True) -> Any:
        self._retry = retry
        return call(self)

    def close(self) -> None:
        self.closed = True

    def __getattr__(self, name: str) -> Any:
        def answer(request: Any, *, timeout: float, metadata: Any) -> Any:
            assert metadata == self.metadata
            self.asked.append((name, request, timeout, self._retry))
            found = self.answers[name]
            if isinstance(found, Exception):
                raise found
            return found

        return answer


def client(cluster: Any, **options: Any) -> IrisClient:
    return IrisClient(cluster, **{"user": "ann", **options})


def test_questions_about_jobs_and_tasks() -> None:
    running = pb.TaskStatus(task_id="/ann/a/0", state=pb.TASK_STATE_RUNNING)
    cluster = Cluster(
        GetJob=pb.JobStatus(job_id="/ann/a", state=pb.JOB_STATE_RUNNING),
        ListJobs=pb.ListJobsResponse(jobs=[pb.JobStatus(job_id="/ann/a", state=pb.JOB_STATE_FAILED)]),
        ListTasks=pb.ListTasksResponse(tasks=[running, running]),
        GetTask=running,
        WaitJobs=pb.WaitJobsResponse(jobs=[pb.JobStatus(job_id="/ann/a", state=pb.JOB_STATE_KILLED)], done=True),
    )
    made = client(cluster)
    assert made.status("/ann/a").state is JobState.RUNNING
    assert [job.state for job in made.list_jobs()] == [JobState.FAILED]
    made.list_jobs("/ann", [JobState.FAILED, JobState.PENDING], 5)
    assert [task.task_id for task in made.list_tasks("/ann/a")] == ["/ann/a/0"] * 2
    assert made.task_status("/ann/a/0").state is TaskState.RUNNING
    ((ended,), done) = made.poll_jobs(["/ann/a"], any=True, seconds=2.5)
    assert (ended.state, done) == (JobState.KILLED, True)
    made.poll_jobs(["/ann/a"])
    states = [pb.JOB_STATE_FAILED, pb.JOB_STATE_PENDING]
    assert [request for _, request, *_ in cluster.asked] == [
        pb.GetJobRequest(job_id="/ann/a"),
        pb.ListJobsRequest(),
        pb.ListJobsRequest(prefix="/ann", states=states, limit=5),
        pb.ListTasksRequest(job_id="/ann/a"),
        pb.GetTaskRequest(task_id="/ann/a/0"),
        pb.WaitJobsRequest(job_ids=["/ann/a"], any=True, timeout_ms=2500),
        pb.WaitJobsRequest(job_ids=["/ann/a"], timeout_ms=1),
    ]
    assert [timeout for _, _, timeout, _ in cluster.asked] == [12.0] * 5 + [14.5, 12.0]
    with pytest.raises(InvalidRequest, match="limit"):
        made.list_jobs(limit=-1)


def test_questions_about_the_cluster() -> None:
    cluster = Cluster(
        Status=pb.ClusterStatusResponse(version="1.2", pid=7),
        Query=pb.QueryResponse(columns=["a"], truncated=True),
        Shutdown=pb.ShutdownResponse(stopped_job_ids=["/ann/a"]),
    )
    made = client(cluster)
    assert made.cluster_status().pid == 7
    made.cluster_status(all_workers=True)
    assert made.query("SELECT 1").truncated
    made.query("SELECT 1", 5)
    assert made.stop_cluster() == ["/ann/a"]
    made.stop_cluster(stop_jobs=True)
    assert [(request, retry) for _, request, _, retry in cluster.asked] == [
        (pb.ClusterStatusRequest(), True),
        (pb.ClusterStatusRequest(all_workers=True), True),
        (pb.QueryRequest(sql="SELECT 1"), True),
        (pb.QueryRequest(sql="SELECT 1", max_rows=5), True),
        (pb.ShutdownRequest(), False),
        (pb.ShutdownRequest(stop_jobs=True), False),
    ]
    with pytest.raises(InvalidRequest, match="max_rows"):
        made.query("SELECT 1", -1)


@pytest.mark.parametrize("jobs", ["/ann/a", 5])
def test_a_text_is_no_list_of_jobs(jobs: Any) -> None:
    with pytest.raises(InvalidRequest, match=rf"^jobs must be a list of jobs or ids, not {jobs!r}$"):
        client(Cluster()).wait_jobs(jobs)


class Stops:
    """Stops jobs, but those of others."""

    def __init__(self) -> None:
        self.asked: list[pb.StopJobRequest] = []

    def stop(self, requests: list[pb.StopJobRequest]) -> list[Any]:
        self.asked += requests
        return [
            Denied("not yours") if request.job_id.startswith("/bob") else
            pb.StopJobResponse(stopped_job_ids=[request.job_id, f"{request.job_id}/c"])
            for request in requests
        ]  # fmt: skip


def test_a_stop_takes_the_children_along_unless_it_is_told_not_to() -> None:
    calls = Stops()
    made = client(Cluster(), calls=calls)
    assert made.terminate("/ann/a") == ["/ann/a", "/ann/a/c"]
    assert made.stop("/ann/a", "enough", include_children=False).job_ids == ("/ann/a", "/ann/a/c")
    with pytest.raises(Denied, match="not yours"):
        made.terminate("/bob/a", include_children=False)
    refused, stopped = made.stop_many(["/bob/a", "/ann/a"], "both")
    assert isinstance(refused, Denied)
    assert not isinstance(stopped, Denied)
    assert [(item.job_id, item.reason, item.keep_children) for item in calls.asked] == [
        ("/ann/a", "", False), ("/ann/a", "enough", True), ("/bob/a", "", True),
        ("/bob/a", "both", False), ("/ann/a", "both", False),
    ]  # fmt: skip


def test_who_a_client_is_and_what_it_hands_out() -> None:
    cluster = Cluster()
    with client(cluster) as made:
        assert (made.user, made.full_name_prefix(), made.address) == ("ann", "/ann", "h:1")
        assert made.connection is cluster
        assert made.job("/ann/a/3").job_id == "/ann/a", "of a task its job"
        assert made.resolver.watch_request("x").namespace == ""
        assert not cluster.closed
    assert cluster.closed
    inside = client(cluster, inside=JOB)
    assert (inside.user, inside.full_name_prefix()) == ("ann", "/ann/a")
    assert inside.resolver.watch_request("x").namespace == "/ann/a"
    again = inside.with_workspace(None)
    assert (again.full_name_prefix(), again.connection) == ("/ann/a", cluster)


def test_clients_of_the_cluster_that_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def find(*given: Any, **named: Any) -> ClusterTarget:
        asked.append((given, named))
        return ClusterTarget("x", lambda _: ControllerAddress("h:1", "t"), user="bob")

    monkeypatch.setattr(client_module, "find_cluster", find)
    monkeypatch.setattr(client_module, "local_cluster", find)
    assert IrisClient.connect("big", config="c.yaml").user == "bob"
    assert IrisClient.connect().user == "bob"
    assert IrisClient.local().user == "bob"
    assert IrisClient.local(user="ann").user == "ann"
    assert asked == [(("big",), {"config": "c.yaml"}), ((None,), {"config": None}), ((), {}), ((), {})]


def endpoint(name: str, attempt: str = "/ann/a/0:1") -> endpoints_pb2.Endpoint:
    return endpoints_pb2.Endpoint(name=name, attempt_id=attempt, address="h:5", metadata={"m": "1"})


def test_endpoints_are_registered_for_the_attempt_and_looked_up_from_the_job() -> None:
    cluster = Cluster(
        Register=endpoints_pb2.RegisterEndpointResponse(endpoint=endpoint("/ann/a/s")),
        Unregister=endpoints_pb2.UnregisterEndpointResponse(),
        Resolve=endpoints_pb2.ResolveEndpointResponse(endpoints=[endpoint("/ann/a/s")]),
        List=endpoints_pb2.ListEndpointsResponse(endpoints=[endpoint("/ann/a/s"), endpoint("/ann/a/t")]),
    )
    registry, resolver = EndpointRegistry(cluster, JOB), EndpointResolver(cluster, "/ann/a")  # type: ignore[arg-type]
    made = registry.register("s", "h:5", {"m": "1"})
    assert (made.name, made.attempt_id, made.address, made.metadata) == ("/ann/a/s", "/ann/a/0:1", "h:5", {"m": "1"})
    registry.register("s", "h:5")
    registry.unregister("s")
    registry.unregister("s", retry=False)
    assert resolver.resolve("s") == [made]
    assert [found.name for found in resolver.list("/ann/")] == ["/ann/a/s", "/ann/a/t"]
    attempt = {"name": "s", "attempt_id": "/ann/a/0:1"}
    assert [(request, retry) for _, request, _, retry in cluster.asked] == [
        (endpoints_pb2.RegisterEndpointRequest(**attempt, address="h:5", metadata={"m": "1"}), True),
        (endpoints_pb2.RegisterEndpointRequest(**attempt, address="h:5"), True),
        (endpoints_pb2.UnregisterEndpointRequest(**attempt), True),
        (endpoints_pb2.UnregisterEndpointRequest(**attempt), False),
        (endpoints_pb2.ResolveEndpointRequest(name="s", namespace="/ann/a"), True),
        (endpoints_pb2.ListEndpointsRequest(prefix="/ann/"), True),
    ]
    assert resolver.watch_request(prefix="/ann/") == endpoints_pb2.WatchEndpointsRequest(prefix="/ann/")


class Updates:
    """One stream of a watch; ends with the error, or in order."""

    def __init__(self, *items: Any) -> None:
        self._items = items
        self.cancelled = 0

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            if isinstance(item, Exception):
                raise item
            yield item

    def cancel(self) -> None:
        self.cancelled += 1


def test_a_watch_goes_on_through_broken_streams_and_tells_only_what_is_new() -> None:
    a, b = endpoint("/ann/a/s"), endpoint("/ann/a/s", "/ann/a/1:0")
    both = endpoints_pb2.EndpointsUpdate(added=[a, b])
    no_such_job = FakeRpcError(grpc.StatusCode.NOT_FOUND, "no such job")
    streams = [
        Updates(endpoints_pb2.EndpointsUpdate(added=[a]), endpoints_pb2.EndpointsUpdate(added=[b])),
        Updates(both, FakeRpcError(grpc.StatusCode.UNAVAILABLE)),
        Updates(both, endpoints_pb2.EndpointsUpdate(removed=[a])),
        Updates(endpoints_pb2.EndpointsUpdate(ended=True, ended_reason="over"), no_such_job),
    ]
    waits: list[str] = []

    class Watched(Cluster):
        stream = Connection.stream

        def current(self) -> "Watched":
            return self

        def note_answer(self) -> None:
            pass

        def retry_deadline(self) -> Any:
            return self

        def reset(self) -> None:
            waits.append("reset")

        def pause(self, error: Exception) -> None:
            waits.append("pause")

        def Watch(self, request: Any, *, metadata: Any) -> Updates:
            assert (request.name, request.namespace, metadata) == ("s", "/ann/a", self.metadata)
            return left.pop(0)

    left = list(streams)
    seen = EndpointResolver(Watched(), "/ann/a").watch("s")  # type: ignore[arg-type]
    found = [next(seen) for _ in range(4)]
    assert [[item.attempt_id for item in now.endpoints] for now in found] == [
        ["/ann/a/0:1"], ["/ann/a/0:1", "/ann/a/1:0"], ["/ann/a/1:0"], [],
    ]  # fmt: skip
    assert [(now.ended, now.ended_reason) for now in found[2:]] == [(False, ""), (True, "over")]
    with pytest.raises(NotFound, match="no such job"):
        next(seen)
    assert waits == ["reset", "reset", "reset", "pause", "reset", "reset", "reset"]
    assert [stream.cancelled for stream in streams] == [1] * 4
