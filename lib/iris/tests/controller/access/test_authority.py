"""Whose token does what while a job lives and when it has ended, against a running controller."""

import queue
import threading
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from iris.rpc import iris_pb2 as pb
from iris.rpc.auth import PrincipalKind
from iris.rpc.logformat import encode
from iris.rpc.protocol import call_metadata
from iris.testing.controller import ControllerStubs, RunningController
from iris.testing.users import User
from iris.testing.worker import ScriptedWorker

WAIT_S = 10.0


@pytest.fixture
def holder(controller: RunningController) -> Any:
    """Clients with a token that is given as text."""
    opened: list[ControllerStubs] = []

    def make(token: str, attempt_id: str | None = None) -> User:
        opened.append(ControllerStubs(controller.address, call_metadata(token, attempt_id)))
        return User(opened[-1])

    yield make
    for stubs in opened:
        stubs.close()


def denied(call: Callable[[], object], *words: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        call()
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    for word in words:
        assert word in refused.value.details()


def test_users_read_and_stop_and_submit_only_their_own(user: User, admin: User, worker: ScriptedWorker) -> None:
    admin.submit("/bob/job", argv=("secret-program", "--password=hunter2"))
    for call, what in (
        (lambda: user.get("/bob/job", include_spec=True), "read jobs"),
        (lambda: user.wait("/ann/none", "/bob/job"), "read jobs"),
        (lambda: user.task("/bob/job/0"), "read jobs"),
        (lambda: user.jobs.ListTasks(pb.ListTasksRequest(job_id="/bob/job")), "read jobs"),
        (lambda: user.logs("/bob/job"), "read logs"),
        (lambda: user.stop("/bob/job"), "stop jobs"),
        (lambda: user.submit("/bob/other"), "submit jobs"),
        (lambda: user.submit("/bob/job/child"), "submit jobs"),
    ):
        denied(call, f"user ann may not {what} of /bob/", "only user bob and admins may")
    (listed,) = user.jobs.ListJobs(pb.ListJobsRequest()).jobs
    assert (listed.job_id, listed.display_command) == ("/bob/job", "")
    assert admin.get("/bob/job").display_command.startswith("secret-program")
    answer = user.cluster.Query(pb.QueryRequest(sql="SELECT job_id, command FROM jobs"))
    assert "hunter2" not in str(answer)
    assert "/bob/job" in str(answer)
    denied(lambda: user.cluster.Shutdown(pb.ShutdownRequest(stop_jobs=True)), "only an admin")
    assert admin.get("/bob/job").state in (pb.JOB_STATE_BUILDING, pb.JOB_STATE_PENDING)


def test_a_token_ends_with_its_attempt(
    controller: RunningController, user: User, holder: Any, worker: ScriptedWorker
) -> None:
    user.submit("/ann/a", max_retries_failure=1)
    user.submit("/ann/b")
    worker.wait_for_start("/ann/a/0:0")
    first = holder(controller.attempt_token("/ann/a/0:0"))
    assert first.get("/ann/b").job_id == "/ann/b"
    denied(lambda: first.stop("/ann/b"), "only jobs of /ann/b, user ann and admins may")
    worker.observe("/ann/a/0:0", pb.TASK_STATE_FAILED, exit_code=1, failure=pb.FAILURE_KIND_USER)
    worker.wait_for_start("/ann/a/0:1")
    # A process of an older release, or of a task of many, shows the job's token and says which attempt it is.
    shared = controller.token(PrincipalKind.JOB, "/ann/a")
    for late in (first, holder(shared, "/ann/a/0:0")):
        for call in (lambda: late.get("/ann/b"), lambda: late.stop("/ann/a"), lambda: late.submit("/ann/a/child")):  # noqa: B023
            denied(call, "attempt /ann/a/0:0 is over, so its token is no longer good for anything")
    for current in (holder(controller.attempt_token("/ann/a/0:1")), holder(shared, "/ann/a/0:1")):
        assert current.get("/ann/b").job_id == "/ann/b"
    denied(lambda: holder(shared, "/ann/b/0:0").get("/ann/b"), "none of its own")
    user.stop("/ann/a")
    for late in (holder(controller.attempt_token("/ann/a/0:1")), holder(shared)):
        denied(lambda: late.get("/ann/b"), "job /ann/a has ended (killed)")  # noqa: B023


def test_a_wait_that_outlives_its_attempt_tells_it_nothing(
    controller: RunningController, user: User, holder: Any, worker: ScriptedWorker
) -> None:
    for job_id in ("/ann/a", "/ann/b"):
        user.submit(job_id)
        worker.wait_for_start(f"{job_id}/0:0")
    request = pb.WaitJobsRequest(job_ids=["/ann/b"], timeout_ms=10_000)
    waiting = holder(controller.attempt_token("/ann/a/0:0"), "/ann/a/0:0").jobs.WaitJobs.future(request)
    worker.wait(lambda: user.task("/ann/a/0").state != pb.TASK_STATE_PENDING, "the wait is there before the stop")
    user.stop("/ann/a")
    user.stop("/ann/b")
    worker.observe("/ann/b/0:0", pb.TASK_STATE_KILLED)
    with pytest.raises(grpc.RpcError) as refused:
        waiting.result()
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED, "and not how /ann/b ended"
    assert "job /ann/a has ended (killed)" in refused.value.details()


def test_a_stream_ends_with_the_attempt_that_reads_it(
    controller: RunningController, user: User, holder: Any, worker: ScriptedWorker
) -> None:
    for job_id in ("/ann/a", "/ann/b"):
        user.submit(job_id)
        worker.wait_for_start(f"{job_id}/0:0")
    reader = holder(controller.attempt_token("/ann/a/0:0"))
    heard: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def read() -> None:
        try:
            for batch in reader.jobs.FetchLogs(pb.FetchLogsRequest(id="/ann/b", follow=True), timeout=WAIT_S):
                heard.put([entry.data for entry in batch.entries])
        except grpc.RpcError as error:
            heard.put(error)

    threading.Thread(target=read, daemon=True).start()
    one, two = (encode(False, 1, text) for text in (b"one", b"two"))
    worker.append_log("/ann/b/0:0", 0, one)
    assert heard.get(timeout=WAIT_S) == [b"one"]
    user.stop("/ann/a")
    worker.append_log("/ann/b/0:0", len(one), two)
    end = heard.get(timeout=WAIT_S)
    assert isinstance(end, grpc.RpcError)
    assert "job /ann/a has ended" in end.details()
