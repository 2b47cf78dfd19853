"""What the services tell, field by field, and to whom."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from iris.controller.app import ControllerConfig
from iris.controller.services.convert_query import query_response
from iris.rpc import iris_pb2 as pb
from iris.rpc.auth import PrincipalKind, user_of_token
from iris.rpc.logformat import encode
from iris.store.query import QueryRows
from iris.testing.controller import ControllerStubs, RunningController, running_controller
from iris.testing.worker import ScriptedWorker
from rigging.testing import eventually

RUNNING, SUCCEEDED, FAILED = pb.TASK_STATE_RUNNING, pb.TASK_STATE_SUCCEEDED, pb.TASK_STATE_FAILED
KILLED = pb.TASK_STATE_KILLED


def refused(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details()


def names(user: Any, **query: Any) -> list[str]:
    return [job.job_id for job in user.jobs.ListJobs(pb.ListJobsRequest(**query)).jobs]


def test_of_others_jobs_a_list_has_no_command_and_no_reason(user: Any, admin: Any, worker: ScriptedWorker) -> None:
    for name in ("/ann/a", "/bob/b"):
        admin.submit(name, argv=("secret", "--key"), description="secret plan")
        worker.wait_for_start(f"{name}/0:0")
        worker.observe(f"{name}/0:0", FAILED, exit_code=3, error="says something")
    admin.wait("/ann/a", "/bob/b")
    theirs, own = user.jobs.ListJobs(pb.ListJobsRequest()).jobs
    assert (own.job_id, own.display_command, "says something" in own.error) == ("/ann/a", "secret --key", True)
    assert own.description == "secret plan"
    assert (theirs.job_id, theirs.display_command, theirs.description, theirs.error) == ("/bob/b", "", "", "")
    assert (theirs.state, theirs.exit_code) == (pb.JOB_STATE_FAILED, 3)
    for status in admin.jobs.ListJobs(pb.ListJobsRequest()).jobs:
        assert status.display_command == "secret --key"


def test_prefixes_and_limits_of_lists(
    controller: RunningController, user: Any, admin: Any, worker: ScriptedWorker
) -> None:
    for name in ("/ann/a", "/ann/a/b", "/ann/ab", "/bob/x"):
        admin.submit(name)
    assert names(user, prefix="/ann/a/") == ["/ann/a/b", "/ann/a"]
    assert names(user, prefix="/ann") == ["/ann/ab", "/ann/a/b", "/ann/a"]
    assert names(user, limit=-1) == names(user, limit=0) == names(user, limit=20_000)
    code, text = refused(lambda: names(user, prefix="ann"))
    assert (code, text) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "prefix 'ann' must begin with '/', e.g. '/user' or '/user/job'",
    )
    worker.wait_for_start("/ann/a/0:0")
    stubs = ControllerStubs(
        controller.address, (("authorization", f"Bearer {controller.attempt_token('/ann/a/0:0')}"),)
    )
    seen = [job.job_id for job in stubs.jobs.ListJobs(pb.ListJobsRequest()).jobs]
    stubs.close()
    assert seen == ["/ann/ab", "/ann/a/b", "/ann/a"], "a job sees its own user's jobs"


def test_a_list_without_a_limit_ends_after_200(user: Any) -> None:
    for number in range(201):
        user.submit(f"/ann/j{number}")
    reply = user.jobs.ListJobs(pb.ListJobsRequest())
    assert (len(reply.jobs), reply.truncated) == (200, True)
    assert reply.jobs[0].job_id == "/ann/j200"
    whole = user.jobs.ListJobs(pb.ListJobsRequest(limit=201))
    assert (len(whole.jobs), whole.truncated) == (201, False)


def test_only_tasks_that_wait_have_a_reason(user: Any, worker: ScriptedWorker) -> None:
    user.submit("/ann/a", replicas=3)  # of two cores
    worker.wait_for_start("/ann/a/1:0")
    tasks = user.jobs.ListTasks(pb.ListTasksRequest(job_id="/ann/a")).tasks
    reasons = [task.pending_reason for task in tasks]
    assert reasons[:2] == ["", ""]
    assert reasons[2] == user.get("/ann/a").pending_reason != ""
    assert [user.task(f"/ann/a/{index}").pending_reason for index in range(3)] == reasons
    assert [task.worker_id for task in tasks] == ["w1", "w1", ""]
    assert refused(lambda: user.task("/ann/a/3"))[0] is grpc.StatusCode.NOT_FOUND
    assert refused(lambda: user.get("/ann/b"))[0] is grpc.StatusCode.NOT_FOUND


def test_the_spec_is_told_only_when_it_is_asked_for(user: Any) -> None:
    user.submit("/ann/a", replicas=2)
    assert not user.get("/ann/a").HasField("spec")
    assert user.get("/ann/a", include_spec=True).spec.replicas == 2
    assert not user.jobs.ListJobs(pb.ListJobsRequest()).jobs[0].HasField("spec")


def test_a_wait_needs_a_job_and_ends_with_its_time(user: Any) -> None:
    user.submit("/ann/a")
    code, text = refused(lambda: user.wait())
    assert (code, text) == (grpc.StatusCode.INVALID_ARGUMENT, "WaitJobs names no job; give at least one")
    for timeout_ms in (0, -5, 10):
        reply = user.wait("/ann/a", timeout_ms=timeout_ms)
        assert (reply.done, reply.jobs[0].job_id) == (False, "/ann/a")
    assert refused(lambda: user.wait("/ann/a", "/ann/x"))[0] is grpc.StatusCode.NOT_FOUND


def test_an_exception_is_kept_with_its_attempt_and_given_to_its_user_alone(
    user: Any, admin: Any, worker: ScriptedWorker, controller: RunningController
) -> None:
    def exception_of(caller: Any, name: str, submitted_at_ms: int = 0) -> bytes:
        request = pb.GetExceptionRequest(job_id=name, submitted_at_ms=submitted_at_ms or user.get(name).submitted_at_ms)
        return caller.jobs.GetException(request).exception

    for name, data in (("/ann/a", b"3.12\npickled"), ("/ann/large", bytes(64 * 1024 + 1)), ("/ann/none", b"")):
        user.submit(name)
        worker.wait_for_start(f"{name}/0:0")
        worker.observe(f"{name}/0:0", pb.TASK_STATE_FAILED, exit_code=1, error="ValueError: x", exception=data)
        assert user.wait_one(name).error
        assert exception_of(user, name) == (data if name == "/ann/a" else b"")
    assert refused(lambda: exception_of(admin, "/ann/a"))[0] is grpc.StatusCode.PERMISSION_DENIED
    assert exception_of(user, "/ann/a", 17) == b"", "another job of that name was meant"
    assert user.logs("/ann/a") == []


def test_a_worker_can_tell_no_exception_of_what_was_given_to_another(
    user: Any, worker: ScriptedWorker, controller: RunningController
) -> None:
    user.submit("/ann/a")
    worker.wait_for_start("/ann/a/0:0")
    with ScriptedWorker(controller.address, controller.worker_token("w2"), "w2") as other:
        other.observe("/ann/a/0:0", pb.TASK_STATE_FAILED, exception=b"3.12\nof a stranger")
        other.beat(1)
        other.wait_for_beat_ack(1)
        worker.observe("/ann/a/0:0", pb.TASK_STATE_FAILED, exit_code=1)
        ended = user.wait_one("/ann/a")
    request = pb.GetExceptionRequest(job_id="/ann/a", submitted_at_ms=ended.submitted_at_ms)
    assert user.jobs.GetException(request).exception == b""


def test_log_entries_have_only_what_is_true_of_them(user: Any, worker: ScriptedWorker) -> None:
    user.submit("/ann/a", replicas=2)
    for index in range(2):
        worker.wait_for_start(f"/ann/a/{index}:0")
    data = [
        encode(False, 5, b"out"), encode(True, 6, b"err"), encode(False, 7, b"half", partial=True),
        encode(False, 8, b"lost", note=True),
    ]  # fmt: skip
    log = b"".join(data)
    worker.append_log("/ann/a/0:0", 0, log)
    worker.wait_for_log_ack("/ann/a/0:0", len(log))
    other = encode(False, 9, b"other")
    worker.append_log("/ann/a/1:0", 0, other)
    worker.wait_for_log_ack("/ann/a/1:0", len(other))
    entries = [e for batch in user.jobs.FetchLogs(pb.FetchLogsRequest(id="/ann/a")) for e in batch.entries]
    assert entries == [
        pb.LogEntry(task_id="/ann/a/0", at_ms=5, data=b"out"),
        pb.LogEntry(task_id="/ann/a/0", at_ms=6, data=b"err", is_stderr=True),
        pb.LogEntry(task_id="/ann/a/0", at_ms=7, data=b"half", partial=True),
        pb.LogEntry(task_id="/ann/a/0", at_ms=8, data=b"lost", note=True),
        pb.LogEntry(task_id="/ann/a/1", at_ms=9, data=b"other"),
    ]
    assert user.logs("/ann/a/1") == [b"other"]
    assert user.logs("/ann/a", since_ms=8) == [b"lost", b"other"]
    for query in ({"max_lines": -1}, {"since_ms": -1}):
        code, text = refused(lambda query=query: user.logs("/ann/a", **query))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert text.endswith("must be 0 or more")


def test_a_tasks_log_is_without_the_jobs_below(user: Any, worker: ScriptedWorker) -> None:
    for name in ("/ann/a", "/ann/a/b"):
        user.submit(name)
        worker.wait_for_start(f"{name}/0:0")
        log = encode(False, 1, name.encode())
        worker.append_log(f"{name}/0:0", 0, log)
        worker.wait_for_log_ack(f"{name}/0:0", len(log))
    assert user.logs("/ann/a", include_children=True) == [b"/ann/a", b"/ann/a/b"]
    assert user.logs("/ann/a/0", include_children=True) == [b"/ann/a"]
    assert user.logs("/ann/a") == [b"/ann/a"]


def test_the_status_of_a_cluster_that_keeps_its_state_here(tmp_path: Path, connect: Any) -> None:
    with running_controller(tmp_path / "state", idle_exit_s=77.5) as controller:
        admin = connect(controller, PrincipalKind.ADMIN, "root")
        status = admin.cluster.Status(pb.ClusterStatusRequest())
        assert (status.idle_exit_ms, status.state_dir) == (77_500, str(tmp_path / "state"))
        assert (status.remote_state_dir, status.durability, status.disk_warning) == ("", "local", "")
        assert (status.unreplicated_commits, status.last_snapshot_at_ms, status.generation) == (0, 0, 0)
        assert status.version
        assert status.started_at_ms > 1_700_000_000_000
        assert (status.pending_tasks, status.running_tasks, len(status.workers)) == (0, 0, 0)


def test_a_checkpoint_of_a_state_that_is_kept_elsewhere(tmp_path: Path, connect: Any) -> None:
    remote = str(tmp_path / "remote")
    with running_controller(tmp_path / "state", remote_state_dir=remote) as controller:
        admin = connect(controller, PrincipalKind.ADMIN, "root")
        admin.submit("/ann/a")
        done = admin.cluster.Checkpoint(pb.CheckpointRequest())
        assert done.remote_state_dir == remote
        assert done.sequence > 0
        assert done.at_ms > 1_700_000_000_000
        status = admin.cluster.Status(pb.ClusterStatusRequest())
        assert status.remote_state_dir == remote
        assert status.generation == done.generation > 0
        assert status.last_snapshot_at_ms == done.at_ms


def test_workers_that_are_gone_are_told_of_only_when_asked_for(
    controller: RunningController, user: Any, admin: Any
) -> None:
    capacity = pb.Resources(cpu_millis=3000, memory_bytes=5, disk_bytes=7)
    given = {"capacity": capacity, "attributes": {"zone": "z"}}
    with ScriptedWorker(controller.address, controller.worker_token("w1"), **given):
        user.submit("/ann/a", memory_bytes=1)

        def told() -> pb.WorkerInfo:
            return user.cluster.Status(pb.ClusterStatusRequest()).workers[0]

        eventually(lambda: told().running_tasks == 1, "the job is on the worker")
        info = told()
        assert info.capacity == capacity
        assert (dict(info.attributes)["zone"], info.connected, info.is_late) == ("z", True, False)
        assert (info.committed.cpu_millis, info.committed.memory_bytes) == (1000, 1)
        assert (info.cordon_reason, info.strikes) == ("", 0)
        user.stop("/ann/a")
        assert told().running_tasks == 0, "what is being stopped does not count"
        assert told().committed.cpu_millis == 1000, "but holds its place"

    def workers(**query: Any) -> list[pb.WorkerInfo]:
        return list(user.cluster.Status(pb.ClusterStatusRequest(**query)).workers)

    eventually(lambda: not workers()[0].connected, "the worker is away")
    lost = admin.cluster.RemoveWorker(pb.RemoveWorkerRequest(worker_id="w1", reason="burnt"))
    assert list(lost.lost_attempt_ids) == ["/ann/a/0:0"]
    assert workers() == workers(all_workers=True) == []


def test_tokens_for_others_are_made_by_admins_and_work(controller: RunningController, admin: Any, connect: Any) -> None:
    token = admin.cluster.CreateToken(pb.CreateTokenRequest(user="bob")).token
    assert user_of_token(token) == "bob", "clients of earlier releases know from it who they are"
    bob = connect(controller, token=token)
    bob.submit("/bob/a")
    assert refused(lambda: bob.submit("/ann/a"))[0] is grpc.StatusCode.PERMISSION_DENIED
    assert refused(lambda: admin.cluster.CreateToken(pb.CreateTokenRequest(user="a/b")))[0] is (
        grpc.StatusCode.INVALID_ARGUMENT
    )


def test_people_see_their_own_budgets_and_admins_all(user: Any, admin: Any) -> None:
    for name in ("bob", "ann"):
        budget = pb.UserBudget(user=name, max_weight=8)
        admin.cluster.SetBudget(pb.SetBudgetRequest(budget=budget))

    def users(caller: Any) -> list[str]:
        return [found.user for found in caller.cluster.ListBudgets(pb.ListBudgetsRequest()).budgets]

    assert users(admin) == ["ann", "bob"]
    assert users(user) == ["ann"]
    [found] = admin.cluster.ListBudgets(pb.ListBudgetsRequest(user="ann")).budgets
    assert (found.max_weight, found.max_band) == (8, pb.PRIORITY_BAND_PRODUCTION)


def test_many_live_jobs_are_named_as_far_as_there_is_room(user: Any, admin: Any) -> None:
    for number in range(5):
        user.submit(f"/ann/j{number}")
    text = refused(lambda: admin.cluster.Shutdown(pb.ShutdownRequest()))[1]
    assert text.startswith("5 live job(s): /ann/j0, /ann/j1, /ann/j2, /ann/j3, /ann/j4; stop them first")
    user.submit("/ann/j5")
    text = refused(lambda: admin.cluster.Shutdown(pb.ShutdownRequest()))[1]
    assert "/ann/j4 and 1 more; stop them first, or shut down with stop_jobs" in text


def test_an_empty_cluster_is_shut_down_at_once(controller: RunningController, admin: Any) -> None:
    assert list(admin.cluster.Shutdown(pb.ShutdownRequest()).stopped_job_ids) == []
    controller.join()


def test_what_others_run_is_answered_to_admins_only(user: Any, admin: Any) -> None:
    for name in ("/ann/a", "/bob/b"):
        admin.submit(name, argv=("true", name))

    def commands(caller: Any, **more: Any) -> list[str]:
        query = pb.QueryRequest(sql="SELECT command FROM jobs ORDER BY job_id", **more)
        return [row.values[0].text for row in caller.cluster.Query(query).rows]

    assert commands(admin) == ['["true","/ann/a"]', '["true","/bob/b"]']
    assert commands(user)[0] == '["true","/ann/a"]'
    assert "/bob/b" not in str(commands(user))
    assert commands(admin, max_rows=1) == ['["true","/ann/a"]']


def test_answers_to_queries_keep_their_kinds() -> None:
    found = query_response(QueryRows(("a",), ((None, 0, 0.0, "", b""),), True))
    kinds = [value.WhichOneof("kind") for value in found.rows[0].values]
    assert kinds == [None, "integer", "real", "text", "blob"]
    assert (list(found.columns), found.truncated) == (["a"], True)


def test_damaged_and_unknown_blobs_are_asked_for_and_whole_ones_are_not(
    controller: RunningController, user: Any, admin: Any
) -> None:
    blobs = [b"good", b"bad", b"never sent"]
    digests = [hashlib.sha256(blob).hexdigest() for blob in blobs]
    chunks = [pb.BlobChunk(digest=digests[n], data=blobs[n], last=True) for n in range(2)]
    assert user.blobs.UploadBlobs(iter([pb.UploadBlobsRequest(chunks=chunks)])).stored == 2
    missing = pb.FindMissingBlobsRequest(digests=[digests[2], digests[0], digests[2]])
    assert list(user.blobs.FindMissingBlobs(missing).digests) == [digests[2]]
    [path] = controller.config.state_dir.glob(f"blobs/*/{digests[1]}")
    path.write_bytes(b"rot")
    assert refused(lambda: list(admin.blobs.FetchBlobs(pb.FetchBlobsRequest(digests=[digests[1]]))))[0] is (
        grpc.StatusCode.NOT_FOUND
    )
    assert list(user.blobs.FindMissingBlobs(pb.FindMissingBlobsRequest(digests=digests)).digests) == digests[1:]


def test_many_small_blobs_share_a_message(user: Any, admin: Any) -> None:
    blobs = [b"%d" % number * 300_000 for number in range(5)]
    digests = [hashlib.sha256(blob).hexdigest() for blob in blobs]
    for blob, digest in zip(blobs, digests, strict=True):
        chunk = pb.BlobChunk(digest=digest, data=blob, last=True)
        user.blobs.UploadBlobs(iter([pb.UploadBlobsRequest(chunks=[chunk])]))
    messages = list(admin.blobs.FetchBlobs(pb.FetchBlobsRequest(digests=digests)))
    assert [len(message.chunks) for message in messages] == [4, 1]
    assert b"".join(chunk.data for message in messages for chunk in message.chunks) == b"".join(blobs)


def test_a_worker_learns_how_often_it_is_to_be_heard_and_what_is_known_of_its_logs(
    tmp_path: Path, connect: Any
) -> None:
    with running_controller(tmp_path / "state", heartbeat_interval_s=1.5) as controller:
        user = connect(controller)
        log = encode(False, 1, b"x")
        with ScriptedWorker(controller.address, controller.worker_token("w1")) as worker:
            user.submit("/ann/a")
            worker.wait_for_start("/ann/a/0:0")
            worker.append_log("/ann/a/0:0", 0, log)
            worker.wait_for_log_ack("/ann/a/0:0", len(log))
        seen = [pb.Observation(attempt_id="/ann/a/0:0", state=RUNNING)]
        with ScriptedWorker(controller.address, controller.worker_token("w1"), inventory=seen) as again:
            assert again.welcome.heartbeat_interval_ms == 1500
            assert [(ack.attempt_id, ack.offset) for ack in again.welcome.log_offsets] == [("/ann/a/0:0", len(log))]


def test_a_stop_says_how_long_an_attempt_has_and_why(tmp_path: Path, connect: Any) -> None:
    with running_controller(tmp_path / "state", stop_grace_s=2.5) as controller:
        user = connect(controller)
        with ScriptedWorker(controller.address, controller.worker_token("w1")) as worker:
            user.submit("/ann/a")
            worker.wait_for_start("/ann/a/0:0")
            assert list(user.stop("/ann/a", "enough").stopped_job_ids) == ["/ann/a"]
            stop = worker.wait_for_stop("/ann/a/0:0")
            assert stop.grace_ms == 2500
            assert "enough" in stop.reason
            worker.observe("/ann/a/0:0", KILLED)
            user.wait_one("/ann/a")
            reply = user.stop("/ann/a")
            assert (list(reply.stopped_job_ids), reply.already) == ([], pb.JOB_STATE_KILLED)
    assert ControllerConfig(tmp_path).stop_grace_s == 5
