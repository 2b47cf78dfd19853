from typing import Any

import grpc
import pytest

from iris.client import client as client_module
from iris.client.client import IrisClient
from iris.client.connection.discovery import ClusterTarget
from iris.client.endpoints import EndpointRegistry, EndpointResolver
from iris.client.job_env import JobEnv
from iris.cluster.types import JobState, TaskState
from iris.rpc.controller_address import ControllerAddress
from iris.rpc.generated import endpoints_pb2 as endpoints
from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import Denied, InvalidRequest, NotFound
from support.iris.played_connection import PlayedConnection
from support.iris.rpc_error import FakeRpcError

JOB = JobEnv("h:1", "/ann/a", "/ann/a/0", "/ann/a/0:1", "w", "")


def client(cluster: Any, **options: Any) -> IrisClient:
    return IrisClient(cluster, **{"user": "ann", **options})


def test_questions_about_jobs_and_tasks() -> None:
    running = pb.TaskStatus(task_id="/ann/a/0", state=pb.TASK_STATE_RUNNING)
    cluster = PlayedConnection(
        GetJob=pb.JobStatus(job_id="/ann/a", state=pb.JOB_STATE_RUNNING),
        ListJobs=pb.ListJobsResponse(jobs=[pb.JobStatus(job_id="/ann/a", state=pb.JOB_STATE_FAILED)]),
        ListTasks=pb.ListTasksResponse(tasks=[running, running]),
        GetTask=running,
        WaitJobs=pb.WaitJobsResponse(jobs=[pb.JobStatus(job_id="/ann/a", state=pb.JOB_STATE_KILLED)], done=True),
    )
    made = client(cluster)
    assert made.status("/ann/a").state is JobState.RUNNING
    assert [job.state for job in made.list_jobs()] == [JobState.FAILED]
    made.list_jobs("/ann", [JobState.FAILED], 5, state=JobState.PENDING)
    assert [task.task_id for task in made.list_tasks("/ann/a")] == ["/ann/a/0"] * 2
    assert made.task_status("/ann/a/0").state is TaskState.RUNNING
    ((ended,), done) = made.poll_jobs(["/ann/a"], any=True, seconds=2.5)
    assert (ended.state, done) == (JobState.KILLED, True)
    made.poll_jobs(["/ann/a"])
    assert cluster.requests == [
        pb.GetJobRequest(job_id="/ann/a"),
        pb.ListJobsRequest(),
        pb.ListJobsRequest(prefix="/ann", states=[pb.JOB_STATE_FAILED, pb.JOB_STATE_PENDING], limit=5),
        pb.ListTasksRequest(job_id="/ann/a"),
        pb.GetTaskRequest(task_id="/ann/a/0"),
        pb.WaitJobsRequest(job_ids=["/ann/a"], any=True, timeout_ms=2500),
        pb.WaitJobsRequest(job_ids=["/ann/a"], timeout_ms=1),
    ]
    assert [timeout for timeout, _ in cluster.options] == [12.0] * 5 + [14.5, 12.0]


def test_a_list_of_tasks_is_asked_for_page_by_page() -> None:
    def page(request: pb.ListTasksRequest) -> pb.ListTasksResponse:
        first = request.first_index
        task = pb.TaskStatus(task_id=f"/ann/a/{first}", state=pb.TASK_STATE_RUNNING)
        return pb.ListTasksResponse(tasks=[task], next_index=1 - first)

    found = client(PlayedConnection(ListTasks=page)).list_tasks("/ann/a")
    assert [task.task_id for task in found] == ["/ann/a/0", "/ann/a/1"]


def test_questions_about_the_cluster() -> None:
    cluster = PlayedConnection(
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
    assert cluster.requests == [
        pb.ClusterStatusRequest(),
        pb.ClusterStatusRequest(all_workers=True),
        pb.QueryRequest(sql="SELECT 1"),
        pb.QueryRequest(sql="SELECT 1", max_rows=5),
        pb.ShutdownRequest(),
        pb.ShutdownRequest(stop_jobs=True),
    ]
    assert [retry for _, retry in cluster.options] == [True] * 4 + [False] * 2


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda made: made.list_jobs(limit=-1), "limit"),
        (
            lambda made: made.list_jobs(state="running"),
            "'running' is unknown; give one of JobState: PENDING, BUILDING",
        ),
        (lambda made: made.list_jobs(state=0), "state of jobs: 0 is unknown"),
        (lambda made: made.query("SELECT 1", -1), "max_rows"),
        (lambda made: made.wait_jobs("/ann/a"), "^jobs must be a list of jobs or ids, not '/ann/a'$"),
        (lambda made: made.wait_jobs(5), "^jobs must be a list of jobs or ids, not 5$"),
        (lambda made: made.read_logs("/ann/a", since=-1), "since"),
        (lambda made: made.read_logs("/ann/a", until=-1), "until"),
        (lambda made: made.read_logs("/ann/a", max_lines=-1), "max_lines"),
    ],
)
def test_what_cannot_be_asked_is_refused_here(ask: Any, error: str) -> None:
    with pytest.raises(InvalidRequest, match=error):
        ask(client(PlayedConnection()))


def test_lines_of_a_log_are_asked_for_by_their_time_in_milliseconds() -> None:
    cluster = PlayedConnection()
    cluster.answers["FetchLogs"] = cluster.streams([])
    asked = {"max_lines": 3, "from_start": True, "include_children": True, "grep": "x", "level": "error", "attempt": 2}
    assert list(client(cluster).read_logs("/ann/a", since=1.5, until=2.25, **asked)) == []  # type: ignore[arg-type]
    assert cluster.requests == [pb.FetchLogsRequest(id="/ann/a", since_ms=1500, until_ms=2250, **asked)]


def test_waits_of_a_process_that_lends_its_cpu_are_calls_of_their_own() -> None:
    cluster = PlayedConnection(WaitJobs=pb.WaitJobsResponse(jobs=[pb.JobStatus(job_id="/ann/a", state=1)], done=True))
    cluster.lends = True
    made = client(cluster)
    for _ in range(4):
        made.wait_jobs(["/ann/a"])
    assert len(cluster.requests) == 4


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
    made = client(PlayedConnection(), calls=calls)
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
    cluster = PlayedConnection()
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
    made = [IrisClient.connect("big", config="c.yaml"), IrisClient.connect(), IrisClient.local()]
    assert [each.user for each in (*made, IrisClient.local(user="ann"))] == ["bob", "bob", "bob", "ann"]
    assert asked == [(("big",), {"config": "c.yaml"}), ((None,), {"config": None}), ((), {}), ((), {})]


def endpoint(name: str, attempt: str = "/ann/a/0:1") -> endpoints.Endpoint:
    return endpoints.Endpoint(name=name, attempt_id=attempt, address="h:5", metadata={"m": "1"})


def test_endpoints_are_registered_for_the_attempt_and_looked_up_from_the_job() -> None:
    cluster: Any = PlayedConnection(
        Register=endpoints.RegisterEndpointResponse(endpoint=endpoint("/ann/a/s")),
        Unregister=endpoints.UnregisterEndpointResponse(),
        Resolve=endpoints.ResolveEndpointResponse(endpoints=[endpoint("/ann/a/s")]),
        List=endpoints.ListEndpointsResponse(endpoints=[endpoint("/ann/a/s"), endpoint("/ann/a/t")]),
    )
    registry, resolver = EndpointRegistry(cluster, JOB), EndpointResolver(cluster, "/ann/a")
    made = registry.register("s", "h:5", {"m": "1"})
    assert (made.name, made.attempt_id, made.address, made.metadata) == ("/ann/a/s", "/ann/a/0:1", "h:5", {"m": "1"})
    registry.register("s", "h:5")
    registry.unregister("s")
    registry.unregister("s", retry=False)
    assert resolver.resolve("s") == [made]
    assert [found.name for found in resolver.list("/ann/")] == ["/ann/a/s", "/ann/a/t"]
    attempt = {"name": "s", "attempt_id": "/ann/a/0:1"}
    assert cluster.requests == [
        endpoints.RegisterEndpointRequest(**attempt, address="h:5", metadata={"m": "1"}),
        endpoints.RegisterEndpointRequest(**attempt, address="h:5"),
        endpoints.UnregisterEndpointRequest(**attempt),
        endpoints.UnregisterEndpointRequest(**attempt),
        endpoints.ResolveEndpointRequest(name="s", namespace="/ann/a"),
        endpoints.ListEndpointsRequest(prefix="/ann/"),
    ]
    assert [retry for _, retry in cluster.options] == [True, True, True, False, True, True]
    assert resolver.watch_request(prefix="/ann/") == endpoints.WatchEndpointsRequest(prefix="/ann/")


def test_a_watch_goes_on_through_broken_streams_and_tells_only_what_is_new() -> None:
    a, b = endpoint("/ann/a/s"), endpoint("/ann/a/s", "/ann/a/1:0")
    update = endpoints.EndpointsUpdate
    away, gone = FakeRpcError(grpc.StatusCode.UNAVAILABLE), FakeRpcError(grpc.StatusCode.NOT_FOUND, "no such job")
    cluster: Any = PlayedConnection()
    cluster.answers["Watch"] = cluster.streams(
        [update(added=[a]), update(added=[b])],
        [update(added=[a, b]), away],
        [update(added=[a, b]), update(removed=[a])],
        [update(ended=True, ended_reason="over"), gone],
    )
    seen = EndpointResolver(cluster, "/ann/a").watch("s")
    found = [next(seen) for _ in range(4)]
    first, second = "/ann/a/0:1", "/ann/a/1:0"
    attempts = [[item.attempt_id for item in now.endpoints] for now in found]
    assert attempts == [[first], [first, second], [second], []]
    assert [(now.ended, now.ended_reason) for now in found[2:]] == [(False, ""), (True, "over")]
    with pytest.raises(NotFound, match="no such job"):
        next(seen)
    counts = {event: cluster.events.count(event) for event in ("reset", "pause", "cancel")}
    assert counts == {"reset": 6, "pause": 1, "cancel": 4}
    assert {(request.name, request.namespace) for request in cluster.requests} == {("s", "/ann/a")}
