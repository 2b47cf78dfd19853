"""Jobs over real gRPC, with a scripted worker."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from iris.controller.admission.limits_policy import LimitsPolicy
from iris.rpc import iris_pb2 as pb
from iris.rpc.auth import PrincipalKind
from iris.rpc.protocol import PROTOCOL_VERSION
from iris.testing.controller import RunningController, running_controller
from iris.testing.worker import ScriptedWorker, succeed_at_once
from rigging.testing import eventually

SUCCEEDED, RUNNING, FAILED, KILLED = (
    pb.TASK_STATE_SUCCEEDED,
    pb.TASK_STATE_RUNNING,
    pb.TASK_STATE_FAILED,
    pb.TASK_STATE_KILLED,
)


def test_a_job_is_started_at_once_and_its_success_is_pushed(user: Any, worker: ScriptedWorker) -> None:
    assert user.submit("/ann/a", argv=("echo", "hi"), env_vars={"A": "1"}).job_id == "/ann/a"
    launch = worker.wait_for_start("/ann/a/0:0").launch
    assert (list(launch.entrypoint.command.argv), dict(launch.environment.env_vars)) == (["echo", "hi"], {"A": "1"})
    assert launch.job_token.startswith("j:/ann/a:")
    worker.observe("/ann/a/0:0", RUNNING, at_ms=5)
    worker.observe("/ann/a/0:0", SUCCEEDED, at_ms=9)
    status = user.wait_one("/ann/a")
    assert (status.state, status.error, status.exit_code) == (pb.JOB_STATE_SUCCEEDED, "", 0)
    worker.wait_for_forget("/ann/a/0:0")
    task = user.task("/ann/a/0")
    assert (task.state, task.attempt, task.worker_id, task.started_at_ms, task.finished_at_ms) == (
        SUCCEEDED, 0, "w1", 5, 9,
    )  # fmt: skip


def test_what_an_attempt_waits_for_on_its_worker_is_shown_until_it_begins(user: Any, worker: ScriptedWorker) -> None:
    user.submit("/ann/a")
    user.submit("/ann/a/b")
    worker.wait_for_start("/ann/a/0:0")
    worker.observe("/ann/a/0:0", pb.TASK_STATE_BUILDING, waits_for="no port from 7000 to 7001 is free")
    reason = "on worker w1: no port from 7000 to 7001 is free"
    eventually(lambda: user.task("/ann/a/0").pending_reason == reason, "the task says so")
    assert user.get("/ann/a").pending_reason == reason
    assert reason not in user.get("/ann/a/b").pending_reason
    worker.observe("/ann/a/0:0", RUNNING)
    eventually(lambda: user.task("/ann/a/0").state == RUNNING, "it begins")
    assert (user.task("/ann/a/0").pending_reason, user.get("/ann/a").pending_reason) == ("", "")


def test_a_wait_ends_with_its_attempt(user: Any, worker: ScriptedWorker) -> None:
    user.submit("/ann/a")
    worker.wait_for_start("/ann/a/0:0")
    worker.observe("/ann/a/0:0", pb.TASK_STATE_BUILDING, waits_for="a port")
    eventually(lambda: user.get("/ann/a").pending_reason, "it says so")
    user.stop("/ann/a")
    assert (user.task("/ann/a/0").pending_reason, user.get("/ann/a").pending_reason) == ("", "")


def test_a_failed_task_fails_the_job_with_its_code_and_reason(user: Any, worker: ScriptedWorker) -> None:
    user.submit("/ann/a", replicas=2)
    worker.wait_for_start("/ann/a/1:0")
    worker.observe("/ann/a/1:0", FAILED, exit_code=3, failure=pb.FAILURE_KIND_USER)
    assert worker.wait_for_stop("/ann/a/0:0").grace_ms == 5000
    worker.observe("/ann/a/0:0", KILLED)
    status = user.wait_one("/ann/a")
    assert (status.state, status.exit_code, status.deciding_task_id) == (pb.JOB_STATE_FAILED, 3, "/ann/a/1")
    assert status.error == "task 1 failed: exit code 3"


def test_a_retry_gets_the_next_attempt(user: Any, worker: ScriptedWorker) -> None:
    user.submit("/ann/a", max_retries_failure=1)
    worker.wait_for_start("/ann/a/0:0")
    worker.observe("/ann/a/0:0", FAILED, exit_code=1, failure=pb.FAILURE_KIND_USER)
    worker.wait_for_start("/ann/a/0:1")
    worker.observe("/ann/a/0:1", SUCCEEDED)
    assert user.wait_one("/ann/a").state == pb.JOB_STATE_SUCCEEDED
    assert list(user.task("/ann/a/0").causes) == ["attempt 0 on w1: exit code 1"]


def test_a_stopped_job_is_over_for_waiters_when_its_attempts_have_ended(user: Any, worker: ScriptedWorker) -> None:
    user.submit("/ann/a")
    worker.wait_for_start("/ann/a/0:0")
    worker.observe("/ann/a/0:0", RUNNING)
    assert list(user.stop("/ann/a", "enough").stopped_job_ids) == ["/ann/a"]
    status = user.get("/ann/a")
    assert (status.state, status.error) == (pb.JOB_STATE_KILLED, "enough")
    assert not user.wait("/ann/a", timeout_ms=50).done
    assert worker.wait_for_stop("/ann/a/0:0").reason == "enough"
    worker.observe("/ann/a/0:0", KILLED)
    assert user.wait_one("/ann/a").state == pb.JOB_STATE_KILLED
    assert user.stop("/ann/a").already == pb.JOB_STATE_KILLED


def test_capacity_of_a_stopped_attempt_is_free_only_after_its_end(user: Any, worker: ScriptedWorker) -> None:
    user.submit("/ann/a", cpu_millis=2000)
    worker.wait_for_start("/ann/a/0:0")
    user.submit("/ann/b", cpu_millis=2000)
    assert "2" in user.get("/ann/b").pending_reason
    user.stop("/ann/a")
    worker.wait_for_stop("/ann/a/0:0")
    assert user.get("/ann/b").state == pb.JOB_STATE_PENDING
    worker.observe("/ann/a/0:0", KILLED)
    worker.wait_for_start("/ann/b/0:0")


def test_the_same_key_gives_the_same_job(user: Any, worker: ScriptedWorker) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: user.submit("/ann/a", key="k1"), range(8)))
    assert sorted(answer.adopted for answer in answers) == [False] + [True] * 7
    assert {answer.job_id for answer in answers} == {"/ann/a"}
    with pytest.raises(grpc.RpcError, match="idempotency key 'k1' was used for /ann/a, not for /ann/b") as refused:
        user.submit("/ann/b", key="k1")
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION


def test_a_live_name_is_taken_unless_adopted_and_an_ended_one_is_free(user: Any, worker: ScriptedWorker) -> None:
    user.submit("/ann/a")
    worker.wait_for_start("/ann/a/0:0")
    with pytest.raises(grpc.RpcError, match="job /ann/a exists and is building") as refused:
        user.submit("/ann/a")
    assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS
    assert user.submit("/ann/a", adopt=True).adopted
    worker.observe("/ann/a/0:0", SUCCEEDED)
    user.wait_one("/ann/a")
    assert not user.submit("/ann/a", adopt=True).adopted
    worker.wait_for_start("/ann/a/0:1")  # attempt numbers are never used twice


def test_waiting_for_any_and_all_and_for_a_while(user: Any, worker: ScriptedWorker) -> None:
    user.submit("/ann/a")
    user.submit("/ann/b")
    for name in ("a", "b"):
        worker.wait_for_start(f"/ann/{name}/0:0")
    assert not user.wait("/ann/a", "/ann/b", any=True, timeout_ms=20).done
    worker.observe("/ann/b/0:0", SUCCEEDED)
    first = user.wait("/ann/a", "/ann/b", any=True)
    assert (first.done, [job.job_id for job in first.jobs]) == (True, ["/ann/a", "/ann/b"])
    assert [job.state for job in first.jobs] == [pb.JOB_STATE_BUILDING, pb.JOB_STATE_SUCCEEDED]
    assert not user.wait("/ann/a", "/ann/b", timeout_ms=20).done
    worker.observe("/ann/a/0:0", SUCCEEDED)
    assert user.wait("/ann/a", "/ann/b").done
    with pytest.raises(grpc.RpcError, match="job /ann/none does not exist") as refused:
        user.wait("/ann/none")
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_child_ends_with_its_parent_and_inherits_its_band(
    controller: RunningController, connect: Any, user: Any, worker: ScriptedWorker
) -> None:
    user.submit("/ann/a", band=pb.PRIORITY_BAND_BATCH)
    token_owner = connect(controller, PrincipalKind.JOB, "/ann/a")
    token_owner.submit("/ann/a/child")
    worker.wait_for_start("/ann/a/child/0:0")
    child = user.get("/ann/a/child", include_spec=True)
    assert (child.parent_id, child.spec.band) == ("/ann/a", pb.PRIORITY_BAND_BATCH)
    worker.observe("/ann/a/0:0", SUCCEEDED)
    worker.wait_for_stop("/ann/a/child/0:0")
    assert "its parent /ann/a ended (succeeded)" in user.get("/ann/a/child").error
    with pytest.raises(grpc.RpcError, match=r"job /ann/a has ended \(succeeded\), so its token"):
        token_owner.submit("/ann/a/late")
    with pytest.raises(grpc.RpcError, match=r"its parent /ann/a has ended \(succeeded\)"):
        user.submit("/ann/a/late")
    with pytest.raises(grpc.RpcError, match="its parent /ann/none does not exist"):
        user.submit("/ann/none/child")


def test_a_parent_that_waits_lends_its_cpu_to_its_children(
    controller: RunningController, connect: Any, user: Any, worker: ScriptedWorker
) -> None:
    user.submit("/ann/a", cpu_millis=2000)
    worker.wait_for_start("/ann/a/0:0")
    worker.observe("/ann/a/0:0", RUNNING)
    parent = connect(controller, PrincipalKind.JOB, "/ann/a", "/ann/a/0:0")
    parent.submit("/ann/a/child", cpu_millis=2000)
    assert user.get("/ann/a/child").state == pb.JOB_STATE_PENDING
    waiting = threading.Thread(target=parent.wait, args=("/ann/a/child",))
    waiting.start()
    worker.wait_for_start("/ann/a/child/0:0")
    worker.observe("/ann/a/child/0:0", SUCCEEDED)
    waiting.join(10)
    assert not waiting.is_alive()
    # It holds its cpu again: nothing else fits.
    user.submit("/ann/b", cpu_millis=2000)
    assert user.get("/ann/b").state == pb.JOB_STATE_PENDING


def test_many_tasks_share_messages_and_all_end(controller: RunningController, user: Any) -> None:
    with ScriptedWorker(controller.address, controller.worker_token("w1"), script=succeed_at_once) as worker:
        user.submit("/ann/a", replicas=500, cpu_millis=0)
        status = user.wait_one("/ann/a")
        assert status.state == pb.JOB_STATE_SUCCEEDED
        assert {c.state: c.count for c in status.task_counts} == {SUCCEEDED: 500}
        assert len({start.attempt_id for start in worker.starts}) == len(worker.starts) == 500


def test_lists_are_newest_first_and_filtered(user: Any, admin: Any, worker: ScriptedWorker) -> None:
    for name in ("/ann/a", "/bob/a", "/ann/ab", "/ann/a/c"):
        admin.submit(name)
    user.stop("/ann/ab")

    def names(**query: Any) -> list[str]:
        return [job.job_id for job in user.jobs.ListJobs(pb.ListJobsRequest(**query)).jobs]

    assert names() == ["/ann/a/c", "/ann/ab", "/bob/a", "/ann/a"]
    assert names(prefix="/ann/a") == ["/ann/a/c", "/ann/a"]
    assert names(states=[pb.JOB_STATE_KILLED]) == ["/ann/ab"]
    assert names(limit=1) == ["/ann/a/c"]
    assert user.jobs.ListJobs(pb.ListJobsRequest(limit=1)).truncated
    assert not user.jobs.ListJobs(pb.ListJobsRequest(limit=4)).truncated
    tasks = user.jobs.ListTasks(pb.ListTasksRequest(job_id="/ann/a")).tasks
    assert [task.task_id for task in tasks] == ["/ann/a/0"]


def test_secrets_of_the_environment_are_not_shown(user: Any) -> None:
    user.submit("/ann/a", env_vars={"TOKEN": "hush"})
    assert "hush" not in str(user.get("/ann/a", include_spec=True))


def test_a_run_that_takes_too_long_is_ended(user: Any, worker: ScriptedWorker) -> None:
    user.submit("/ann/a", timeout_ms=50)
    worker.wait_for_start("/ann/a/0:0")
    worker.observe("/ann/a/0:0", RUNNING)
    worker.wait_for_stop("/ann/a/0:0")
    worker.observe("/ann/a/0:0", KILLED)
    assert "timed out: it ran longer than 0.05 s" in user.wait_one("/ann/a").error


def test_a_job_that_is_not_scheduled_in_time_says_so(user: Any) -> None:
    user.submit("/ann/a", scheduling_timeout_ms=50)
    status = user.wait_one("/ann/a")
    assert (status.state, status.error) == (pb.JOB_STATE_UNSCHEDULABLE, "not scheduled within 0.05 s")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"name": "ann/a"}, "'ann/a' is not a job id"),
        ({"name": "/ann/7"}, "'7' is not a valid name of a job or user"),
        ({"replicas": 0}, "replicas is 0; allowed are 1 to 100000"),
        ({"replicas": 100_001}, "replicas is 100001; allowed are 1 to 100000"),
        ({"argv": ()}, "the command is empty"),
        ({"entrypoint": pb.Entrypoint()}, "no entrypoint"),
        ({"cpu_millis": -1}, "cpu is -1; it must be 0 or more"),
        ({"cpu_millis": 64_000}, r"can never run: needs 64 cores; the largest worker \(w1\) has 2"),
        ({"timeout_ms": -5}, "timeout_ms is -5"),
        ({"fence_after_ms": 60_000}, "fence_after_ms is 60000, but the job is not exclusive"),
        ({"exclusive": True, "fence_after_ms": -1}, "fence_after_ms is -1; it must be above 0"),
        ({"exclusive": True, "fence_after_ms": 2**40}, f"fence_after_ms is {2**40}; it must be above 0 and at most"),
        ({"exclusive": True, "fence_after_ms": 1}, "fence_after is 0.001 s; it must be at least 20 s here"),
        ({"env_vars": {"1A": ""}}, "environment variable '1A'"),
        ({"pip_packages": ("--index-url http://x",)}, "pip package '--index-url http://x' is not a requirement"),
        ({"bundle_digest": "ab" * 32}, f"its bundle {'ab' * 32} is not uploaded"),
        ({"bundle_digest": "../x"}, "'../x' is not a blob digest"),
        (
            {"entrypoint": pb.Entrypoint(callable=pb.Callable(payload_digest="cd" * 32))},
            f"its callable {'cd' * 32} is not uploaded",
        ),
        ({"ports": ["a", "a"]}, "not distinct"),
        ({"band": 9}, "priority band 9 is unknown; known are 1 PRODUCTION, 2 INTERACTIVE, 3 BATCH"),
    ],
)
def test_a_bad_job_is_refused_with_the_reason_and_leaves_nothing(
    user: Any, worker: ScriptedWorker, spec: dict[str, Any], reason: str
) -> None:
    spec = dict(spec)
    with pytest.raises(grpc.RpcError, match=reason) as refused:
        user.submit(spec.pop("name", "/ann/a"), **spec)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not user.jobs.ListJobs(pb.ListJobsRequest()).jobs


def test_good_requirements_are_accepted(user: Any) -> None:
    good = ("numpy", "numpy>=2", "numpy [extra1,x]~=2.0", "a.b_c", "x @ https://host/x.whl", "y; python_version<'4'")
    user.submit("/ann/a", pip_packages=good)
    assert user.get("/ann/a", include_spec=True).spec.environment.pip_packages == list(good)


def test_a_payload_may_come_with_the_job(user: Any, admin: Any, worker: ScriptedWorker) -> None:
    payload = b"pickled"
    import hashlib

    digest = hashlib.sha256(payload).hexdigest()
    entry = pb.Entrypoint(callable=pb.Callable(payload_digest=digest, display_name="m:f"))
    spec = pb.JobSpec(job_id="/ann/a", entrypoint=entry, replicas=1)
    user.jobs.SubmitJob(pb.SubmitJobRequest(spec=spec, inline_blobs=[payload]))
    assert worker.wait_for_start("/ann/a/0:0").launch.entrypoint.callable.payload_digest == digest
    chunks = [c for r in admin.blobs.FetchBlobs(pb.FetchBlobsRequest(digests=[digest])) for c in r.chunks]
    assert [(c.data, c.last) for c in chunks] == [(payload, True)]
    assert user.get("/ann/a").display_command == "m:f"


def test_limits_that_are_soft_by_default_and_chosen_otherwise(tmp_path: Path, connect: Any) -> None:
    with running_controller(tmp_path / "state", limits=LimitsPolicy("soft", force=True)) as controller:
        user = connect(controller)
        with ScriptedWorker(controller.address, controller.worker_token("w1")) as worker:
            user.submit("/ann/a", enforced="memory,cpu")
            assert worker.wait_for_start("/ann/a/0:0").launch.enforced == "cpu"
            with pytest.raises(grpc.RpcError, match="/ann/b: it asks to be held to its limits"):
                user.submit("/ann/b", enforced="memory", limits_mode="enforced")


def test_an_idle_controller_leaves_with_its_workers(tmp_path: Path, connect: Any) -> None:
    with running_controller(tmp_path / "state", idle_exit_s=0.2) as controller:
        user = connect(controller)
        with ScriptedWorker(controller.address, controller.worker_token("w1")) as worker:
            user.submit("/ann/a")
            worker.wait_for_start("/ann/a/0:0")
            assert not user.wait("/ann/a", timeout_ms=500).done  # a live job keeps it
            worker.observe("/ann/a/0:0", SUCCEEDED)
            worker.wait_for_end()
            assert worker.goodbye is not None
            assert (worker.goodbye.exit, worker.goodbye.reason) == (True, "idle for 0.2 s")
            controller.join()


def test_shutdown_with_live_jobs_is_refused_unless_they_are_to_be_stopped(
    controller: RunningController, user: Any, admin: Any, worker: ScriptedWorker
) -> None:
    user.submit("/ann/a")
    worker.wait_for_start("/ann/a/0:0")
    with pytest.raises(grpc.RpcError, match=r"1 live job\(s\): /ann/a; stop them first"):
        admin.cluster.Shutdown(pb.ShutdownRequest())
    asked = admin.cluster.Shutdown.future(pb.ShutdownRequest(stop_jobs=True))
    worker.wait_for_stop("/ann/a/0:0")
    worker.observe("/ann/a/0:0", KILLED)
    assert list(asked.result(10).stopped_job_ids) == ["/ann/a"]
    worker.wait_for_end()
    assert worker.goodbye is not None
    assert worker.goodbye.exit
    controller.join()


def test_status_tells_what_there_is(user: Any, worker: ScriptedWorker) -> None:
    user.submit("/ann/a", replicas=3)
    worker.wait_for_start("/ann/a/1:0")
    worker.observe("/ann/a/0:0", RUNNING)
    worker.observe("/ann/a/1:0", SUCCEEDED)
    worker.wait_for_start("/ann/a/2:0")
    status = user.cluster.Status(pb.ClusterStatusRequest())
    assert (status.protocol_version, status.pending_tasks, status.running_tasks) == (PROTOCOL_VERSION, 0, 1)
    (info,) = status.workers
    assert (info.worker_id, info.connected, info.committed.cpu_millis, info.running_tasks) == ("w1", True, 2000, 2)


def test_a_query_sees_what_was_acknowledged_and_only_users_may_ask(
    controller: RunningController, user: Any, worker: ScriptedWorker, connect: Any
) -> None:
    user.submit("/ann/a", env_vars={"TOKEN": "hunter2"})
    query = pb.QueryRequest(sql="SELECT job_id, state, 1.5, NULL, x'00ff' FROM jobs")
    answer = user.cluster.Query(query)
    assert list(answer.columns)[:2] == ["job_id", "state"]
    (row,) = answer.rows
    assert [value.WhichOneof("kind") for value in row.values] == ["text", "integer", "real", None, "blob"]
    assert row.values[0].text == "/ann/a"
    with pytest.raises(grpc.RpcError) as refused:
        user.cluster.Query(pb.QueryRequest(sql="DELETE FROM jobs"))
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    with pytest.raises(grpc.RpcError) as invalid:
        user.cluster.Query(pb.QueryRequest(sql="SELECT"))
    assert invalid.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.RpcError) as not_for_jobs:
        connect(controller, PrincipalKind.JOB, "/ann/a").cluster.Query(query)
    assert not_for_jobs.value.code() is grpc.StatusCode.PERMISSION_DENIED
