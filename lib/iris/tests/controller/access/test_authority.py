"""Who may do what: every RPC, every kind of caller, on what is their own and what is others', while a job lives."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import grpc
import pytest

from iris.controller.access.authority import (
    RULES,
    Scope,
    as_attempt,
    authorize,
    check_caller,
    check_live,
    may_read,
    owner_of,
    root_of,
    rule_of,
)
from iris.domain.ids import AttemptId
from iris.domain.states import TaskState
from iris.rpc.auth import Principal, PrincipalKind
from iris.rpc.generated import access_pb2, actor_pb2, dashboard_pb2, endpoints_pb2, exec_pb2
from iris.rpc.generated import endpoints_pb2 as epb
from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import Denied, InvalidRequest, MarinError
from support.iris.controller import RunningController
from support.iris.users import User
from support.iris.worker import ScriptedWorker

ADMIN = Principal(PrincipalKind.ADMIN, "root")
ANN = Principal(PrincipalKind.USER, "ann")
WORKER = Principal(PrincipalKind.WORKER, "w1")
JOB = Principal(PrincipalKind.JOB, "/ann/top/train")
ATTEMPT = Principal(PrincipalKind.JOB, "/ann/top/train", AttemptId("/ann/top/train/0:1"))
CALLERS: Final = (ADMIN, ANN, WORKER, JOB)

METHODS: Final = {
    f"{service.name}/{method.name}": method
    for described in (file.DESCRIPTOR for file in (pb, endpoints_pb2, access_pb2, dashboard_pb2, exec_pb2))
    for service in described.services_by_name.values()
    for method in service.methods
}

# What each caller may do to the entities of one list, by position: a yes is a letter, a no is a dot.
#   entities: /ann/top (own root) · /ann/top/train/x (own child) · /ann/other (own user's) · /bob/job (another's)
JOBS: Final = ("/ann/top", "/ann/top/train/x", "/ann/other", "/bob/job")
READ: Final = ("yyyy", "yyy.", "....", "yyy.")
BY_ADMINS: Final = {
    "ClusterService": (
        "Shutdown CordonWorker RemoveWorker UncordonWorker CreateSlice DeleteSlice SetBudget Checkpoint CreateToken"
    ),
    "AccessService": "CreateJoinToken ListJoinTokens RevokeJoinToken ListUserTokens RevokeUserToken RevokeWorker",
}
EXPECTED: Final[dict[str, tuple[str, str, str, str]]] = {
    # admin, user ann, worker w1, job /ann/top/train
    "JobService/SubmitJob": ("yyyy", "yyy.", "....", ".y.."),
    "JobService/GetJob": READ,
    "JobService/WaitJobs": READ,
    "JobService/GetException": ("....", "yyy.", "....", "yyy."),
    "JobService/GetResult": ("....", "yyy.", "....", "yyy."),
    "JobService/ListJobs": ("yyyy", "yyyy", "....", "yyy."),
    "JobService/ListTasks": READ,
    "JobService/GetTask": READ,
    "JobService/StopJob": ("yyyy", "yyy.", "....", "yy.."),
    "JobService/RequeueJob": ("yyyy", "yyy.", "....", "yy.."),
    "JobService/UpdateJob": ("yyyy", "yyy.", "....", "yy.."),
    "JobService/HoldJob": ("yyyy", "yyy.", "....", "yy.."),
    "JobService/FetchLogs": READ,
    "ClientService/Session": ("yyyy", "yyyy", "....", "yyyy"),
    "BlobService/FindMissingBlobs": ("yyyy", "yyyy", "yyyy", "yyyy"),
    "BlobService/UploadBlobs": ("yyyy", "yyyy", "yyyy", "yyyy"),
    "BlobService/FetchBlobs": ("yyyy", "....", "yyyy", "...."),
    "ClusterService/Status": ("yyyy", "yyyy", "....", "yyyy"),
    "ClusterService/ListSlices": ("yyyy", "yyyy", "....", "yyyy"),
    "ClusterService/Query": ("yyyy", "yyyy", "....", "...."),
    "ClusterService/ListBudgets": ("yyyy", "yyy.", "....", "...."),
    "AccessService/Join": ("....", "....", "....", "...."),  # only who shows a join token
    "DashboardService/WatchChanges": ("yyyy", "yyyy", "....", "...."),
    "DashboardService/CreateLoginLink": ("yyyy", "yyyy", "....", "...."),
    "DashboardService/ControllerFigures": ("yyyy", "yyyy", "....", "...."),
    "EndpointService/Register": ("....", "....", "....", "...."),
    "EndpointService/Unregister": ("....", "....", "....", "...."),
    "EndpointService/Resolve": READ,
    "EndpointService/List": READ,
    "EndpointService/Watch": READ,
    "EndpointService/ActorKey": READ,
    "ExecService/Exec": ("yyyy", "yyy.", "....", "...."),
    "ExecService/Inspect": READ,
    "ExecService/Attach": ("....", "....", "....", "...."),
    "WorkerService/Session": ("....", "....", "....", "...."),
} | {
    f"{service}/{method}": ("yyyy", "....", "....", "....")
    for service, methods in BY_ADMINS.items()
    for method in methods.split()
}


def verdicts(caller: Principal, method: str) -> str:
    said = ""
    for entity in JOBS:
        try:
            authorize(caller, RULES[method], entity)
            said += "y"
        except Denied:
            said += "."
    return said


def test_every_rpc_has_a_rule_and_a_line_in_this_table() -> None:
    """A new RPC: say in RULES who may call it, and here what that comes to."""
    assert set(RULES) == set(METHODS) == set(EXPECTED)
    # Actors' callers prove to the actor itself that they hold its user's key (iris.actor.transport.handshake).
    assert list(actor_pb2.DESCRIPTOR.services_by_name) == ["ActorService"]


@pytest.mark.parametrize("method", EXPECTED)
def test_who_may_do_what_to_whose(method: str) -> None:
    assert tuple(verdicts(caller, method) for caller in CALLERS) == EXPECTED[method]


@pytest.mark.parametrize("method", EXPECTED)
def test_a_kind_of_caller_that_never_may_is_refused_before_the_message_is_read(method: str) -> None:
    for caller in CALLERS:
        rule = rule_of(f"/iris.v1.{method}")
        if rule.scope(caller.kind) is Scope.NOTHING:
            with pytest.raises(Denied, match=f"^{caller} may not {rule.action}: only .* may$"):
                check_caller(caller, rule)
        else:
            check_caller(caller, rule)


@pytest.mark.parametrize("method", EXPECTED)
def test_a_rule_that_depends_on_whose_says_where_that_stands_in_the_message(method: str) -> None:
    rule, described = RULES[method], METHODS[method]
    limited = {rule.scope(kind) for kind in PrincipalKind} - {Scope.ANY, Scope.NOTHING}
    if limited and not described.client_streaming:
        assert rule.about is not None
        file = epb if "Endpoint" in method else exec_pb2 if "Exec" in method else pb
        request = getattr(file, described.input_type.name)()
        list(rule.about(ANN, request))  # its fields exist


def test_who_shows_a_join_token_may_join_and_nothing_else() -> None:
    joining = Principal(PrincipalKind.JOIN, "abcd")
    assert [method for method in RULES if "y" in verdicts(joining, method)] == ["AccessService/Join"]


def test_an_rpc_without_a_rule_is_refused_to_all() -> None:
    for caller in CALLERS:
        with pytest.raises(Denied, match="only nobody may"):
            check_caller(caller, rule_of("/iris.v1.JobService/New"))


@pytest.mark.parametrize(
    ("method", "request_", "about"),
    [
        ("JobService/SubmitJob", pb.SubmitJobRequest(spec=pb.JobSpec(job_id="/bob/x")), ["/bob/x"]),
        ("JobService/WaitJobs", pb.WaitJobsRequest(job_ids=["/ann/a", "/bob/b"]), ["/ann/a", "/bob/b"]),
        ("JobService/ListJobs", pb.ListJobsRequest(), ["/ann"]),
        ("JobService/GetTask", pb.GetTaskRequest(task_id="/bob/x/0"), ["/bob/x/0"]),
        ("EndpointService/Resolve", epb.ResolveEndpointRequest(name="/bob/x/db"), ["/bob/x/db"]),
        ("EndpointService/Resolve", epb.ResolveEndpointRequest(name="db", namespace="/bob/x"), ["/bob/x"]),
        ("EndpointService/Resolve", epb.ResolveEndpointRequest(name="db"), ["/ann/top/train"]),
        ("EndpointService/Watch", epb.WatchEndpointsRequest(prefix="/bob/x/"), ["/bob/x/", "/ann/top/train"]),
        ("EndpointService/Watch", epb.WatchEndpointsRequest(prefix="/ann/", name="/bob/x/y"), ["/ann/", "/bob/x/y"]),
        ("EndpointService/ActorKey", epb.ActorKeyRequest(), ["/ann"]),
        ("EndpointService/ActorKey", epb.ActorKeyRequest(user="bob"), ["/bob"]),
        ("ClusterService/ListBudgets", pb.ListBudgetsRequest(user="bob"), ["/bob"]),
    ],
)
def test_what_a_message_is_about(method: str, request_: Any, about: list[str]) -> None:
    extract = RULES[method].about
    assert extract is not None
    assert list(extract(JOB, request_)) == about


@pytest.mark.parametrize(
    ("caller", "method", "entity", "reason"),
    [
        (ANN, "JobService/StopJob", "/bob/x", "user ann may not stop jobs of /bob/x: only user bob and admins may"),
        (ANN, "EndpointService/ActorKey", "/root", "user ann may not call actors of /root: only user root and admins"),
        (ANN, "ClusterService/CordonWorker", "w1", "user ann may not cordon workers: only an admin (the owner of the"),
        (ANN, "ExecService/Exec", "/bob/x/0", "not run commands in tasks of /bob/x/0: only user bob and admins may"),
        (JOB, "ExecService/Exec", "/ann/top/train/0", "may not run commands in tasks: only admins and users may"),
        (WORKER, "ExecService/Attach", "w2", "may not serve commands in tasks as 'w2': each may only speak for itself"),
        (ANN, "WorkerService/Session", "w1", "user ann may not open sessions: only workers may"),
        (
            JOB, "JobService/StopJob", "/ann/other/0",
            "job /ann/top/train may not stop jobs of /ann/other/0: only jobs of /ann/other, user ann and admins may",
        ),
        (JOB, "JobService/SubmitJob", "/ann/topless", "only jobs below itself (/ann/top/train/...), not /ann/topless"),
        (WORKER, "WorkerService/Session", "w2", "may not open sessions as 'w2': each may only speak for itself"),
        (ATTEMPT, "EndpointService/Register", "/ann/top/train/0:0", "as '/ann/top/train/0:0': each may only speak for"),
        (JOB, "EndpointService/Register", "/ann/top/0:0", "as '/ann/top/0:0': each may only speak for itself"),
    ],
)  # fmt: skip
def test_a_refusal_names_caller_action_and_who_may(caller: Principal, method: str, entity: str, reason: str) -> None:
    with pytest.raises(Denied) as refused:
        authorize(caller, RULES[method], entity)
    assert reason in str(refused.value)


def test_each_speaks_for_itself() -> None:
    authorize(WORKER, RULES["WorkerService/Session"], "w1")
    for caller in (ATTEMPT, JOB):  # a job's own token names no attempt
        authorize(caller, RULES["EndpointService/Register"], "/ann/top/train/0:1")


def test_a_call_with_a_jobs_own_token_may_name_an_attempt_of_that_job() -> None:
    assert as_attempt(JOB, "/ann/top/train/0:1") == ATTEMPT
    assert as_attempt(JOB, "") is JOB
    for other in ("/ann/top/0:0", "/bob/top/train/0:0", "x"):
        with pytest.raises(Denied, match="none of its own"):
            as_attempt(JOB, other)


@pytest.mark.parametrize("entity", ["", "x", "ann/x", "/", "//x"])
def test_an_id_that_names_nobody_is_refused_as_such(entity: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a job id or task id"):
        authorize(ANN, RULES["JobService/GetJob"], entity)


def test_names_that_begin_alike_are_not_the_same_user_or_tree() -> None:
    for other in ("/annabel/x", "/an/x", "/ann-/x", "/Ann/x"):
        assert not may_read(ANN, other)
    assert owner_of("/ann") == owner_of("/ann/") == "ann"
    assert root_of("/ann/top/train/0") == root_of("/ann/top") == "/ann/top"
    with pytest.raises(Denied):
        authorize(JOB, RULES["JobService/StopJob"], "/ann/topless")
    with pytest.raises(Denied):
        authorize(JOB, RULES["JobService/StopJob"], "/ann")


class View:
    """Of one job with one task, whose second attempt runs."""

    def __init__(
        self,
        job_ended: bool = False,
        attempt: int = 1,
        task_live: bool = True,
        may_return: bool = False,
        in_grace: bool = False,
    ) -> None:
        self.lost = {"/ann/top/train/0:1": SimpleNamespace(may_return=may_return)}
        state = TaskState.RUNNING if task_live else TaskState.PENDING
        self._task = SimpleNamespace(attempt=attempt, state=state)
        stopping = SimpleNamespace(stopping=True, found=False)
        self.bookings = {"/ann/top/train/0:1": stopping} if in_grace else {}
        state = SimpleNamespace(is_terminal=job_ended, word="killed" if job_ended else "running")
        self.jobs = {"/ann/top/train": SimpleNamespace(state=state)}

    def find_attempt(self, name: str) -> tuple[Any, int]:
        return self._task, int(name.rpartition(":")[2])


@pytest.mark.parametrize(
    ("caller", "view", "reason"),
    [
        (ATTEMPT, View(), ""),
        (JOB, View(), ""),
        (ANN, View(job_ended=True), ""),
        (JOB, View(job_ended=True), r"job /ann/top/train has ended \(killed\)"),
        (ATTEMPT, View(job_ended=True), r"job /ann/top/train has ended \(killed\)"),
        (ATTEMPT, View(attempt=2), "attempt /ann/top/train/0:1 is over"),
        (ATTEMPT, View(task_live=False), "attempt /ann/top/train/0:1 is over"),
        (ATTEMPT, View(task_live=False, in_grace=True), ""),
        (ATTEMPT, View(attempt=2, task_live=False, in_grace=True), "attempt /ann/top/train/0:1 is over"),
        (ATTEMPT, View(task_live=False, may_return=True), "attempt /ann/top/train/0:1 was given up while its host"),
        (Principal(PrincipalKind.JOB, "/ann/gone"), View(), "job /ann/gone is not known"),
    ],
)
def test_a_jobs_token_ends_with_the_job_and_with_the_attempt(caller: Principal, view: Any, reason: str) -> None:
    if not reason:
        check_live(caller, view)
        return
    with pytest.raises(MarinError, match=reason):
        check_live(caller, view)


def test_the_manual_says_who_may_do_what() -> None:
    columns = (PrincipalKind.ADMIN, PrincipalKind.USER, PrincipalKind.JOB, PrincipalKind.WORKER)
    rows = {rule.action: " | ".join(rule.scope(kind).value for kind in columns) for rule in RULES.values()}
    alike = {scopes: [action for action in rows if rows[action] == scopes] for scopes in rows.values()}
    table = "\n".join(f"| {', '.join(actions)} | {scopes} |" for scopes, actions in alike.items())
    manual = (Path(__file__).parents[5] / "docs" / "reference" / "iris-clusters.md").read_text()
    assert table in manual, f"docs/reference/iris-clusters.md, 'Who may do what', must have:\n{table}"
    same = {(rule.action, *(rule.scope(kind) for kind in PrincipalKind)) for rule in RULES.values()}
    assert len(same) == len(rows)  # one action has one answer


def denied(call: Callable[[], object], *words: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        call()
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    for word in words:
        assert word in refused.value.details()


def test_a_wait_that_outlives_its_attempt_tells_it_nothing(
    controller: RunningController, user: User, connect: Any, worker: ScriptedWorker
) -> None:
    for job_id in ("/ann/a", "/ann/b"):
        user.submit(job_id)
        worker.wait_for_start(f"{job_id}/0:0")
    request = pb.WaitJobsRequest(job_ids=["/ann/b"], timeout_ms=10_000)
    waiting = connect(
        controller, token=controller.attempt_token("/ann/a/0:0"), attempt_id="/ann/a/0:0"
    ).jobs.WaitJobs.future(request)
    worker.wait(lambda: user.task("/ann/a/0").state != pb.TASK_STATE_PENDING, "the wait is there before the stop")
    user.stop("/ann/a")
    user.stop("/ann/b")
    worker.observe("/ann/b/0:0", pb.TASK_STATE_KILLED)
    with pytest.raises(grpc.RpcError) as refused:
        waiting.result()
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED, "and not how /ann/b ended"
    assert "job /ann/a has ended (killed)" in refused.value.details()
