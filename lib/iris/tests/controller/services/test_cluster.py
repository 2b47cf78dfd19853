"""What the cluster tells of itself, what operators do to it, and its end."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import grpc
import pytest

from fray.testing.waiting import eventually
from iris.autoscale.model import Outcome, SliceRecord, SliceState
from iris.autoscale.runtime import Autoscaler
from iris.controller.access.interceptor import serve_for
from iris.controller.clients.sessions import StoppedJobs
from iris.controller.context import Shutdown
from iris.controller.services.cluster import ClusterService
from iris.controller.services.query_process import query_response
from iris.domain.events import Caller
from iris.domain.ids import JobId
from iris.rpc.auth import Principal, PrincipalKind, user_of_token
from iris.rpc.generated import access_pb2
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.protocol import PROTOCOL_VERSION
from iris.store.query import QueryRows
from support.iris.controller import RunningController, running_controller
from support.iris.rpc_error import refused
from support.iris.worker import ScriptedWorker

RUNNING, SUCCEEDED, KILLED = pb.TASK_STATE_RUNNING, pb.TASK_STATE_SUCCEEDED, pb.TASK_STATE_KILLED
STATUS = pb.ClusterStatusRequest()


def test_an_idle_controller_leaves_with_its_workers(tmp_path: Path, connect: Any) -> None:
    with running_controller(tmp_path / "state", idle_exit_s=0.2) as controller:
        user = connect(controller)
        with ScriptedWorker(controller.address, controller.worker_token("w1")) as worker:
            user.submit("/ann/a")
            worker.wait_for_start("/ann/a/0:0")
            assert not user.wait("/ann/a", timeout_ms=300).done  # a live job keeps it
            worker.observe("/ann/a/0:0", SUCCEEDED)
            worker.wait_for_end()
            assert worker.goodbye == pb.Goodbye(reason="idle for 0.2 s", exit=True)
            controller.join()


def test_shutdown_with_live_jobs_is_refused_unless_they_are_to_be_stopped(
    controller: RunningController, user: Any, admin: Any, worker: ScriptedWorker
) -> None:
    for number in range(5):
        user.submit(f"/ann/j{number}", cpu_millis=1800)
    text = refused(lambda: admin.cluster.Shutdown(pb.ShutdownRequest()))[1]
    assert text.startswith("5 live job(s): /ann/j0, /ann/j1, /ann/j2, /ann/j3, /ann/j4; stop them first")
    user.submit("/ann/j5", cpu_millis=1800)
    text = refused(lambda: admin.cluster.Shutdown(pb.ShutdownRequest()))[1]
    assert "/ann/j4 and 1 more; stop them first, or shut down with stop_jobs" in text
    asked = admin.cluster.Shutdown.future(pb.ShutdownRequest(stop_jobs=True))
    worker.wait_for_stop("/ann/j0/0:0")
    worker.observe("/ann/j0/0:0", KILLED)
    assert list(asked.result(10).stopped_job_ids) == [f"/ann/j{number}" for number in range(6)]
    worker.wait_for_end()
    assert worker.goodbye is not None
    assert worker.goodbye.exit
    controller.join()


async def test_slices_are_listed_created_and_deleted_by_the_autoscaler() -> None:
    serve_for(Principal(PrincipalKind.ADMIN, "root"))
    record = SliceRecord("a-0", "a", SliceState.FAILED, 1, 2, outcome=Outcome.QUOTA, words="no more")
    scaler = create_autospec(Autoscaler, instance=True, slices={"a-0": record})
    scaler.create_slice.return_value = "a-1"
    service = ClusterService(SimpleNamespace(autoscaler=scaler))
    (found,) = (await service.ListSlices(pb.ListSlicesRequest(), None)).slices
    assert found == pb.SliceInfo(
        name="a-0", scale_group="a", state="failed", created_at_ms=1, changed_at_ms=2, outcome="quota", words="no more"
    )
    assert (await service.CreateSlice(pb.CreateSliceRequest(group="a"), None)).name == "a-1"
    await service.DeleteSlice(pb.DeleteSliceRequest(name="a-1"), None)
    without = ClusterService(SimpleNamespace(autoscaler=None))
    assert not (await without.ListSlices(pb.ListSlicesRequest(), None)).slices


async def test_a_shutdown_goes_on_when_who_asked_for_it_has_left() -> None:
    exits: list[Shutdown] = []
    waits: list[Any] = []
    waited = asyncio.Event()

    async def wait(job_ids: list[JobId], any_of_them: bool, timeout_s: float) -> None:
        waits.append((job_ids, any_of_them, timeout_s))
        waited.set()
        await asyncio.Event().wait()

    def begin_stop(job_id: JobId, reason: str, caller: Caller) -> "asyncio.Future[StoppedJobs]":
        assert (reason, caller.name) == ("the cluster was shut down", "root")
        found: asyncio.Future[StoppedJobs] = asyncio.get_running_loop().create_future()
        found.set_result(StoppedJobs((job_id,), None))
        return found

    serve_for(Principal(PrincipalKind.ADMIN, "root"))
    service = ClusterService(
        SimpleNamespace(
            view=SimpleNamespace(live_jobs={JobId("/ann/a"): None}),
            begin_stop=begin_stop,
            waiters=SimpleNamespace(wait=wait),
            config=SimpleNamespace(stop_grace_s=1.0),
            request_exit=exits.append,
        )
    )
    asking = asyncio.create_task(service.Shutdown(pb.ShutdownRequest(stop_jobs=True), None))
    await asyncio.wait_for(waited.wait(), 10)
    assert waits == [(["/ann/a"], False, 6.0)]
    assert exits == [], "what runs is stopped first"
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert exits == [Shutdown("shut down on request", workers_exit=True)]


def test_the_status_of_a_cluster_that_keeps_its_state_here(tmp_path: Path, connect: Any) -> None:
    with running_controller(tmp_path / "state", idle_exit_s=77.5) as controller:
        admin = connect(controller, PrincipalKind.ADMIN, "root")
        status = admin.cluster.Status(STATUS)
        assert (status.protocol_version, status.idle_exit_ms) == (PROTOCOL_VERSION, 77_500)
        assert (status.remote_state_dir, status.durability, status.disk_warning) == ("", "local", "")
        assert (status.unreplicated_commits, status.last_snapshot_at_ms, status.generation) == (0, 0, 0)
        assert (bool(status.version), status.state_dir) == (True, str(tmp_path / "state"))
        assert status.started_at_ms > 1_700_000_000_000
        assert (status.pending_tasks, status.running_tasks, len(status.workers)) == (0, 0, 0)
        code, text = refused(lambda: admin.cluster.Checkpoint(pb.CheckpointRequest()))
        assert (code, "storage.remote_state_dir" in text) == (grpc.StatusCode.FAILED_PRECONDITION, True)
        for ask in (
            lambda: admin.cluster.CreateSlice(pb.CreateSliceRequest(group="v5p")),
            lambda: admin.cluster.DeleteSlice(pb.DeleteSliceRequest(name="v5p-0")),
        ):
            assert "this cluster creates no machines" in refused(ask)[1]
        assert list(admin.cluster.Shutdown(pb.ShutdownRequest()).stopped_job_ids) == []
        controller.join()


def test_a_checkpoint_of_a_state_that_is_kept_elsewhere(tmp_path: Path, connect: Any) -> None:
    remote = str(tmp_path / "remote")
    with running_controller(tmp_path / "state", remote_state_dir=remote) as controller:
        admin = connect(controller, PrincipalKind.ADMIN, "root")
        admin.submit("/ann/a")
        done = admin.cluster.Checkpoint(pb.CheckpointRequest())
        assert done.sequence > 0
        assert done.at_ms > 1_700_000_000_000
        status = admin.cluster.Status(STATUS)
        assert done.remote_state_dir == status.remote_state_dir == remote
        assert status.generation == done.generation > 0
        assert status.last_snapshot_at_ms == done.at_ms


def test_workers_that_are_gone_are_told_when_asked_for(controller: RunningController, user: Any, admin: Any) -> None:
    capacity = pb.Resources(cpu_millis=3000, memory_bytes=5, disk_bytes=7)
    given = {"capacity": capacity, "attributes": {"zone": "z"}}

    def workers(all_workers: bool = False) -> list[pb.WorkerInfo]:
        return list(user.cluster.Status(pb.ClusterStatusRequest(all_workers=all_workers)).workers)

    def attempts() -> list[tuple[str, str]]:
        (info,) = user.cluster.Status(pb.ClusterStatusRequest(worker_ids=["w1", "w2"])).workers
        return [(attempt.attempt_id, attempt.state) for attempt in info.attempts]

    with ScriptedWorker(controller.address, controller.worker_token("w1"), **given) as worker:
        user.submit("/ann/a", memory_bytes=1, replicas=2)
        worker.wait_for_start("/ann/a/1:0")
        worker.observe("/ann/a/0:0", RUNNING)
        eventually(lambda: user.cluster.Status(STATUS).running_tasks == 1, "one of its tasks runs")
        (info,) = workers()
        assert info.capacity == capacity
        assert (dict(info.attributes)["zone"], info.connected, info.is_late) == ("z", True, False)
        assert (info.running_tasks, info.committed.cpu_millis, info.committed.memory_bytes) == (2, 2000, 2)
        assert (info.cordon_reason, info.strikes, len(info.attempts)) == ("", 0, 0)
        assert attempts() == [("/ann/a/0:0", "running"), ("/ann/a/1:0", "assigned")]
        for name, cpu, memory in (("/ann/a/0:0", 1500, 7), ("/ann/a/1:0", 20, 1)):
            usage = pb.AttemptUsage(attempt_id=name, cpu_millis=cpu, memory_bytes=memory)
            worker.send(pb.WorkerMessage(usage=[usage]))
        eventually(lambda: workers()[0].used_memory_bytes == 8, "what both use is told")
        assert workers()[0].used_cpu_millis == 1520
        admin.cluster.CordonWorker(pb.CordonWorkerRequest(worker_id="w1", reason="bad fan"))
        assert (workers()[0].cordoned_by, workers()[0].cordoned_at_ms > 1_700_000_000_000) == ("root", True)
        user.stop("/ann/a")
        assert attempts() == [("/ann/a/0:0", "stopping"), ("/ann/a/1:0", "stopping")]
        assert workers()[0].running_tasks == 0, "what is being stopped does not count"
        assert workers()[0].committed.cpu_millis == 2000, "but holds its place"
    eventually(lambda: not workers()[0].connected, "the worker is away")
    lost = admin.cluster.RemoveWorker(pb.RemoveWorkerRequest(worker_id="w1", reason="burnt"))
    assert list(lost.lost_attempt_ids) == ["/ann/a/0:0", "/ann/a/1:0"]
    assert workers() == workers(all_workers=True) == []


def test_a_cordoned_worker_gets_nothing_new_and_with_a_drain_what_runs_goes_elsewhere(
    controller: RunningController, user: Any, admin: Any, worker: ScriptedWorker
) -> None:
    unknown = pb.CordonWorkerRequest(worker_id="w9", reason="x")
    words = "worker w9 does not exist; known are w1"
    assert refused(lambda: admin.cluster.CordonWorker(unknown)) == (grpc.StatusCode.NOT_FOUND, words)
    admin.cluster.CordonWorker(pb.CordonWorkerRequest(worker_id="w1", reason="bad fan"))
    assert user.cluster.Status(STATUS).workers[0].cordon_reason == "bad fan"
    user.submit("/ann/a")
    eventually(lambda: "cordoned (w1: bad fan)" in user.get("/ann/a").pending_reason, "the job says which, and why")
    assert admin.cluster.UncordonWorker(pb.UncordonWorkerRequest(worker_id="w1")).former_reason == "bad fan"
    worker.wait_for_start("/ann/a/0:0")
    worker.observe("/ann/a/0:0", RUNNING)
    with ScriptedWorker(controller.address, controller.worker_token("v2"), worker_id="v2") as other:
        assert [item.worker_id for item in user.cluster.Status(STATUS).workers] == ["v2", "w1"], "by name"
        drain = pb.CordonWorkerRequest(worker_id="w1", reason="new kernel", drain=True)
        assert admin.cluster.CordonWorker(drain).moved_attempt_ids == ["/ann/a/0:0"]
        worker.wait_for_stop("/ann/a/0:0")
        worker.observe("/ann/a/0:0", KILLED)
        other.wait_for_start("/ann/a/0:1")
        task = user.task("/ann/a/0")
        assert (task.failures, task.preemptions) == (0, 0), "nobody is charged"
        assert "w1 is drained: new kernel" in task.causes[0]


def test_tokens_for_others_are_made_by_admins_and_work(controller: RunningController, admin: Any, connect: Any) -> None:
    token = admin.cluster.CreateToken(pb.CreateTokenRequest(user="bob")).token
    assert user_of_token(token) == "bob", "clients of earlier releases know from it who they are"
    bob = connect(controller, token=token)
    bob.submit("/bob/a")
    assert refused(lambda: bob.submit("/ann/a"))[0] is grpc.StatusCode.PERMISSION_DENIED
    assert refused(lambda: admin.cluster.CreateToken(pb.CreateTokenRequest(user="a/b")))[0] is (
        grpc.StatusCode.INVALID_ARGUMENT
    )


def test_a_budget_is_kept_and_limits_the_band(user: Any, admin: Any, worker: ScriptedWorker) -> None:
    cluster = admin.stubs.cluster
    budget = pb.UserBudget(user="bob", max_weight=8, max_band=pb.PRIORITY_BAND_BATCH)
    cluster.SetBudget(pb.SetBudgetRequest(budget=budget))
    assert list(cluster.ListBudgets(pb.ListBudgetsRequest(user="bob")).budgets) == [budget]
    cluster.SetBudget(pb.SetBudgetRequest(budget=pb.UserBudget(user="ann", max_weight=8)))
    (asked,) = cluster.Query(pb.QueryRequest(sql="SELECT reason FROM audit WHERE subject = '/bob'")).rows
    assert asked.values[0].text == '{"max_weight":8.0,"max_band":3}'

    def users(caller: Any) -> list[str]:
        return [found.user for found in caller.cluster.ListBudgets(pb.ListBudgetsRequest()).budgets]

    assert (users(admin), users(user)) == (["ann", "bob"], ["ann"]), "people see their own, admins all"
    assert cluster.ListBudgets(pb.ListBudgetsRequest(user="eve")).budgets[0].max_band == pb.PRIORITY_BAND_PRODUCTION
    code, text = refused(lambda: admin.submit("/bob/a"))
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert "the most urgent allowed is batch" in text
    negative = pb.SetBudgetRequest(budget=pb.UserBudget(user="bob", max_weight=-1))
    assert refused(lambda: cluster.SetBudget(negative))[0] is grpc.StatusCode.INVALID_ARGUMENT


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
    assert refused(lambda: user.cluster.Query(pb.QueryRequest(sql="DELETE FROM jobs")))[0] is (
        grpc.StatusCode.PERMISSION_DENIED
    )


def test_the_audit_names_who_asked_for_what_and_from_where(admin: Any, user: Any, worker: ScriptedWorker) -> None:
    user.submit("/ann/a")
    user.stop("/ann/a", "enough")
    admin.cluster.CordonWorker(pb.CordonWorkerRequest(worker_id="w1", reason="bad fan"))
    made = admin.cluster.CreateToken(pb.CreateTokenRequest(user="bob"))
    admin.stubs.access.RevokeUserToken(access_pb2.RevokeUserTokenRequest(token_id=made.token_id))

    def audit() -> list[tuple[str, ...]]:
        query = pb.QueryRequest(sql="SELECT caller, address, action, subject, reason FROM audit ORDER BY sequence")
        return [tuple(value.text for value in row.values) for row in admin.cluster.Query(query).rows]

    eventually(lambda: len(audit()) == 5, "the last line is written")
    assert audit() == [
        ("ann", "127.0.0.1", "submitted", "/ann/a", ""),
        ("ann", "127.0.0.1", "stopped", "/ann/a", "enough"),
        ("root", "127.0.0.1", "cordoned", "w1", "bad fan"),
        ("root", "127.0.0.1", "make tokens", "/bob", ""),
        ("root", "127.0.0.1", "revoke users' tokens", made.token_id, ""),
    ]


def test_answers_to_queries_keep_their_kinds() -> None:
    found = query_response(QueryRows(("a",), ((None, 0, 0.0, "", b""),), True))
    kinds = [value.WhichOneof("kind") for value in found.rows[0].values]
    assert kinds == [None, "integer", "real", "text", "blob"]
    assert (list(found.columns), found.truncated) == (["a"], True)
