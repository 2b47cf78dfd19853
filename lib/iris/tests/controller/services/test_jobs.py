"""Jobs over real gRPC, with a scripted worker: what the service does and tells, field by field, and to whom."""

import asyncio
import contextvars
import hashlib
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from fray.testing.waiting import eventually
from iris.controller.access.interceptor import serve_for
from iris.controller.admission.limits_policy import LimitsPolicy
from iris.controller.clients.waiters import JobWaiters
from iris.controller.engine.engine import Engine
from iris.controller.logs.store import LogStore
from iris.controller.services.jobs import JobService
from iris.core.state.changes import Changes
from iris.core.state.view import ClusterView
from iris.domain.entities import JobsPerUser
from iris.domain.events import AttemptObserved, JobSubmitted, LendCpu, WorkerConnected
from iris.domain.ids import AttemptId, JobId, WorkerId
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.resources import Resources
from iris.domain.states import TaskState
from iris.rpc.auth import Principal, PrincipalKind
from iris.rpc.generated import dashboard_pb2 as dashboard
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.logformat import encode
from iris.rpc.protocol import ATTEMPT_ID_KEY
from iris.store.store import Store
from support.iris.controller import ControllerStubs, RunningController, running_controller
from support.iris.rpc_error import refused
from support.iris.scheduling import InMemoryCluster, resources
from support.iris.worker import ScriptedWorker

SUCCEEDED, RUNNING = pb.TASK_STATE_SUCCEEDED, pb.TASK_STATE_RUNNING
FAILED, KILLED = pb.TASK_STATE_FAILED, pb.TASK_STATE_KILLED
ADOPT = pb.EXISTING_JOB_POLICY_ADOPT
CALL = pb.Entrypoint(callable=pb.Callable(payload_digest="cd" * 32))
REPLACE = pb.EXISTING_JOB_POLICY_REPLACE
SMALL = b"3.12\nsmall"
CHUNK = 1 << 20
WORKER = WorkerId("w1")


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
    worker.wait_for_start("/ann/a/b/0:0")
    worker.observe("/ann/a/b/0:0", pb.TASK_STATE_BUILDING, waits_for="a port")
    eventually(lambda: user.get("/ann/a/b").pending_reason, "it says so")
    user.stop("/ann/a/b")
    assert (user.task("/ann/a/b/0").pending_reason, user.get("/ann/a/b").pending_reason) == ("", "")


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


def test_the_same_key_gives_the_same_job(user: Any, worker: ScriptedWorker) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: user.submit("/ann/a", key="k1"), range(8)))
    assert sorted(answer.adopted for answer in answers) == [False] + [True] * 7
    assert {answer.job_id for answer in answers} == {"/ann/a"}
    assert not user.submit("/ann/b", key="k1").adopted, "a key belongs to a name"


def test_a_live_name_is_taken_unless_adopted_or_replaced_an_ended_one_free(user: Any, worker: ScriptedWorker) -> None:
    user.submit("/ann/a")
    worker.wait_for_start("/ann/a/0:0")
    code, text = refused(lambda: user.submit("/ann/a"))
    assert (code, text.startswith("job /ann/a exists and is building")) == (grpc.StatusCode.ALREADY_EXISTS, True)
    assert "stop it, adopt it, replace it" in text
    assert user.submit("/ann/a", existing=ADOPT).adopted
    worker.observe("/ann/a/0:0", SUCCEEDED)
    user.wait_one("/ann/a")
    assert not user.submit("/ann/a", existing=ADOPT).adopted
    worker.wait_for_start("/ann/a/0:1")  # attempt numbers are never used twice
    assert not user.submit("/ann/a", existing=REPLACE).adopted
    worker.wait_for_stop("/ann/a/0:1")
    assert user.get("/ann/a").state == pb.JOB_STATE_PENDING, "until the replaced one has ended"
    assert len(worker.starts) == 2
    worker.observe("/ann/a/0:1", KILLED)
    worker.wait_for_start("/ann/a/0:2")


def test_a_held_job_says_who_holds_it(user: Any, admin: Any, worker: ScriptedWorker) -> None:
    user.submit("/ann/first", cpu_millis=2000)
    user.submit("/ann/a", cpu_millis=2000)
    assert user.jobs.HoldJob(pb.HoldJobRequest(job_id="/ann/a")).before == ""
    assert user.get("/ann/a").pending_reason.startswith("held by ann since 20")
    assert user.cluster.Status(pb.ClusterStatusRequest()).pending_tasks == 1
    admin.submit("/ann/b", cpu_millis=2000)
    admin.jobs.HoldJob(pb.HoldJobRequest(job_id="/ann/b"))
    code, text = refused(lambda: user.jobs.HoldJob(pb.HoldJobRequest(job_id="/ann/b", release=True)))
    assert (code, "only an admin may release it" in text) == (grpc.StatusCode.PERMISSION_DENIED, True)
    user.stop("/ann/first")
    assert user.jobs.HoldJob(pb.HoldJobRequest(job_id="/ann/a", release=True)).before.startswith("held by ann")
    worker.wait_for_start("/ann/first/0:0")
    worker.observe("/ann/first/0:0", pb.TASK_STATE_KILLED)
    worker.wait_for_start("/ann/a/0:0")


def test_an_update_is_checked_and_survives_a_restart(tmp_path: Path, connect: Any) -> None:
    def update(user: Any, **changes: Any) -> None:
        user.jobs.UpdateJob(pb.UpdateJobRequest(job_id="/ann/a", **changes))

    with running_controller(tmp_path) as controller:
        user = connect(controller)
        with ScriptedWorker(controller.address, controller.worker_token("w1")) as worker:
            user.submit("/ann/first", cpu_millis=2000)
            worker.wait_for_start("/ann/first/0:0")
            user.submit("/ann/a", cpu_millis=2000, env_vars={"K": "v"})
            update(user, cpu_millis=500, band=pb.PRIORITY_BAND_BATCH, timeout_ms=0)
            with pytest.raises(grpc.RpcError, match=r"needs 9 cores; the largest worker \(w1\) has 2"):
                update(user, cpu_millis=9000)
            with pytest.raises(grpc.RpcError, match="job /ann/a: timeout_ms is -5; it must be 0 or more"):
                update(user, timeout_ms=-5)
            with pytest.raises(grpc.RpcError, match="job /ann/a: band is 7; allowed are 1 production, 2 interactive"):
                update(user, band=7)
            user.stop("/ann/first")
    with running_controller(tmp_path) as controller:
        spec = connect(controller).get("/ann/a", include_spec=True).spec
        assert (spec.resources.cpu_millis, spec.band) == (500, pb.PRIORITY_BAND_BATCH)
        with ScriptedWorker(controller.address, controller.worker_token("w1"), instance_id="new") as worker:
            assert dict(worker.wait_for_start("/ann/a/0:0").launch.environment.env_vars) == {"K": "v"}


def test_a_requeued_job_runs_as_it_was_submitted_also_after_a_restart(tmp_path: Path, connect: Any) -> None:
    with running_controller(tmp_path) as controller:
        user = connect(controller)
        with ScriptedWorker(controller.address, controller.worker_token("w1")) as worker:
            user.submit("/ann/gone")
            worker.wait_for_start("/ann/gone/0:0")
            worker.observe("/ann/gone/0:0", SUCCEEDED)
            user.submit("/ann/a", env_vars={"K": "v"}, max_retries_failure=1, after="/ann/gone:ok")
            worker.wait_for_start("/ann/a/0:0")
            user.jobs.HoldJob(pb.HoldJobRequest(job_id="/ann/a"))
            assert user.get("/ann/a").pending_reason.endswith("UTC; `iris job release` lets its retries start")
            assert user.jobs.RequeueJob(pb.RequeueJobRequest(job_id="/ann/a")).was == pb.JOB_STATE_BUILDING
            worker.wait_for_stop("/ann/a/0:0")
            worker.observe("/ann/a/0:0", pb.TASK_STATE_KILLED)
            assert user.jobs.HoldJob(pb.HoldJobRequest(job_id="/ann/a", release=True)).before.startswith("held by ann")
            worker.wait_for_start("/ann/a/0:1")
            worker.observe("/ann/a/0:1", SUCCEEDED)
            eventually(lambda: user.get("/ann/a").state == pb.JOB_STATE_SUCCEEDED, "it has ended")
    store = Store.open(controller.config.state_dir)
    store.commit(Changes(forgotten_jobs={JobId("/ann/gone")}))
    store.close()
    with running_controller(tmp_path) as controller:
        user = connect(controller)
        with ScriptedWorker(controller.address, controller.worker_token("w1")) as worker:
            assert user.jobs.RequeueJob(pb.RequeueJobRequest(job_id="/ann/a")).was == pb.JOB_STATE_SUCCEEDED
            launch = worker.wait_for_start("/ann/a/0:2").launch
            assert dict(launch.environment.env_vars) == {"K": "v"}
            assert user.get("/ann/a", include_spec=True).spec.max_retries_failure == 1
            user.submit("/ann/a/child")
            worker.observe("/ann/a/0:2", SUCCEEDED)
            worker.wait_for_stop("/ann/a/child/0:0")
            with pytest.raises(grpc.RpcError, match="its parent /ann/a has ended"):
                user.jobs.RequeueJob(pb.RequeueJobRequest(job_id="/ann/a/child"))
            with pytest.raises(grpc.RpcError, match="job /ann/none does not exist"):
                user.jobs.RequeueJob(pb.RequeueJobRequest(job_id="/ann/none"))


def test_a_job_says_after_which_it_starts_and_none_waits_for_itself(
    user: Any, admin: Any, worker: ScriptedWorker
) -> None:
    admin.submit("/bob/a")
    user.submit("/ann/a")
    user.submit("/ann/a/k")
    user.submit("/ann/b", after="/ann/a:ok")
    user.submit("/ann/c", after="/ann/b:ok")
    user.jobs.HoldJob(pb.HoldJobRequest(job_id="/ann/c"))
    assert user.get("/ann/b").pending_reason == "waits for job /ann/a to succeed"
    held = r"held by ann since .* lets it start; waits for job /ann/b to succeed"
    assert re.fullmatch(held, user.get("/ann/c").pending_reason)
    for after, code, why in (
        ("/bob/a:ok", grpc.StatusCode.PERMISSION_DENIED, "may not read jobs of /bob/a: only user bob and admins may"),
        ("/bob/none:ok", grpc.StatusCode.PERMISSION_DENIED, "may not read jobs of /bob/none: only user bob and admin"),
        ("/ann/a:no", grpc.StatusCode.INVALID_ARGUMENT, "after has '/ann/a:no'; the condition must be ok or any"),
        ("/ann/a/0:ok", grpc.StatusCode.INVALID_ARGUMENT, "after has '/ann/a/0:ok': job id '/ann/a/0': '0' is not"),
        ("/ann/a:ok,/ann/a:ok", grpc.StatusCode.INVALID_ARGUMENT, "after names a job twice"),
        ("/ann/a/k:any", grpc.StatusCode.FAILED_PRECONDITION, "cannot start after /ann/a/k: that ends with the job"),
        ("/ann/c:any", grpc.StatusCode.FAILED_PRECONDITION, "after /ann/c, which waits for /ann/a: that ends with"),
    ):
        found, text = refused(lambda after=after: user.submit("/ann/a", after=after, existing=REPLACE))
        assert (found, why in text) == (code, True), text
    worker.wait_for_start("/ann/a/0:0")
    worker.observe("/ann/a/0:0", SUCCEEDED)
    worker.wait_for_start("/ann/b/0:0")
    assert user.jobs.RequeueJob(pb.RequeueJobRequest(job_id="/ann/b")).was == pb.JOB_STATE_BUILDING
    assert user.get("/ann/c").state == pb.JOB_STATE_UNSCHEDULABLE


def test_a_child_ends_with_its_parent_unless_the_stop_says_otherwise_and_inherits_its_band(
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
    user.submit("/ann/kept", cpu_millis=10)
    user.submit("/ann/kept/child", cpu_millis=10)
    reply = user.jobs.StopJob(pb.StopJobRequest(job_id="/ann/kept", keep_children=True))
    assert list(reply.stopped_job_ids) == ["/ann/kept"]
    assert user.get("/ann/kept/child").state != pb.JOB_STATE_KILLED
    with pytest.raises(grpc.RpcError, match=r"job /ann/a has ended \(succeeded\), so its token"):
        token_owner.submit("/ann/a/late")
    with pytest.raises(grpc.RpcError, match=r"its parent /ann/a has ended \(succeeded\)"):
        user.submit("/ann/a/late")
    with pytest.raises(grpc.RpcError, match="its parent /ann/none does not exist"):
        user.submit("/ann/none/child")


def test_a_run_or_a_wait_that_takes_too_long_is_ended(user: Any, worker: ScriptedWorker) -> None:
    user.submit("/ann/a", timeout_ms=50, cpu_millis=2000)
    user.submit("/ann/b", scheduling_timeout_ms=50, cpu_millis=2000)
    worker.wait_for_start("/ann/a/0:0")
    worker.observe("/ann/a/0:0", RUNNING)
    status = user.wait_one("/ann/b")
    assert (status.state, status.error) == (pb.JOB_STATE_UNSCHEDULABLE, "not scheduled within 0.05 s")
    worker.wait_for_stop("/ann/a/0:0")
    worker.observe("/ann/a/0:0", KILLED)
    assert "timed out: it ran longer than 0.05 s" in user.wait_one("/ann/a").error


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"name": "ann/a"}, "'ann/a' is not a job id"),
        ({"entrypoint": pb.Entrypoint()}, "no entrypoint"),
        ({"cpu_millis": 64_000}, r"can never run: needs 64 cores; the largest worker \(w1\) has 2"),
        ({"exclusive": True, "fence_after_ms": 1}, "fence_after is 0.001 s; it must be at least 20 s here"),
        ({"bundle_digest": "ab" * 32}, f"its bundle {'ab' * 32} is not uploaded"),
        ({"entrypoint": CALL}, f"its callable {'cd' * 32} is not uploaded"),
        ({"band": 9}, "priority band 9 is unknown; known are 1 PRODUCTION, 2 INTERACTIVE, 3 BATCH"),
    ],
)
def test_a_bad_job_is_refused_and_told(user: Any, worker: ScriptedWorker, spec: dict[str, Any], reason: str) -> None:
    spec = dict(spec)
    with pytest.raises(grpc.RpcError, match=reason) as refused:
        user.submit(spec.pop("name", "/ann/a"), **spec)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not user.jobs.ListJobs(pb.ListJobsRequest()).jobs


def test_a_payload_may_come_with_the_job(user: Any, admin: Any, worker: ScriptedWorker) -> None:
    payload = b"pickled"
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
            with pytest.raises(grpc.RpcError, match="/ann/b: it asks for enforced limits"):
                user.submit("/ann/b", enforced="memory", limits_mode="enforced")


def test_a_user_with_all_allowed_pending_jobs_gets_no_more(tmp_path: Path, connect: Any) -> None:
    with running_controller(tmp_path / "state", jobs_per_user=JobsPerUser(max_pending=2)) as controller:
        admin = connect(controller, PrincipalKind.ADMIN, "root")
        for name in ("/ann/a", "/ann/b", "/ann/b/child", "/bob/x"):
            admin.submit(name)
        assert refused(lambda: admin.submit("/ann/c")) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "job /ann/c is refused: user ann has 2 pending jobs, and the cluster allows 2 (jobs_per_user.max_pending); "
            "wait until one starts, or stop one: `iris job list --state pending`",
        )
        admin.submit("/ann/b", existing=REPLACE)
        admin.stop("/ann/a")
        admin.submit("/ann/c")


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
    assert names(user, limit=1) == ["/bob/x"]
    listed = {job.job_id: job for job in user.jobs.ListJobs(pb.ListJobsRequest()).jobs}
    places = {name: (job.queue_place, job.queue_length) for name, job in listed.items()}
    assert places == {"/ann/a": (0, 0), "/ann/a/b": (0, 0), "/ann/ab": (2, 2), "/bob/x": (1, 2)}
    assert user.get("/ann/ab").queue_place == 2
    queue = user.stubs.dashboard.ControllerFigures(dashboard.ControllerFiguresRequest()).queue
    assert [job.job_id for job in queue] == ["/bob/x", "/ann/ab"], "as on the page"
    assert [item.count for item in listed["/ann/a"].descendant_counts] == [1]
    user.stop("/ann/ab")
    assert names(user, states=[pb.JOB_STATE_KILLED]) == ["/ann/ab"]
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
    worker.observe("/ann/a/0:0", pb.TASK_STATE_SUCCEEDED)
    worker.wait_for_forget("/ann/a/0:0")
    for limit, indexes in ((1, "1"), (2, "12"), (3, "012")):
        found = user.jobs.ListTasks(pb.ListTasksRequest(job_id="/ann/a", limit=limit)).tasks
        assert "".join(task.task_id[-1] for task in found) == indexes, "live tasks before pending and succeeded ones"
    assert [task.worker_id for task in tasks] == ["w1", "w1", ""]
    assert refused(lambda: user.task("/ann/a/3"))[0] is grpc.StatusCode.NOT_FOUND
    assert refused(lambda: user.get("/ann/b"))[0] is grpc.StatusCode.NOT_FOUND


def test_tasks_are_listed_in_pages_of_500(user: Any) -> None:
    user.submit("/ann/a", replicas=501)
    request = pb.ListTasksRequest(job_id="/ann/a")
    page = user.jobs.ListTasks(request)
    assert (len(page.tasks), page.next_index) == (500, 500), "one answer of all would hold up the loop"
    request.first_index = page.next_index
    rest = user.jobs.ListTasks(request)
    assert ([task.task_id for task in rest.tasks], rest.next_index) == (["/ann/a/500"], 0)
    request.first_index = -1
    assert refused(lambda: user.jobs.ListTasks(request))[0] is grpc.StatusCode.INVALID_ARGUMENT


def test_the_spec_is_told_only_when_it_is_asked_for_and_without_secrets(user: Any) -> None:
    user.submit("/ann/a", replicas=2, env_vars={"TOKEN": "hush"})
    assert not user.get("/ann/a").HasField("spec")
    told = user.get("/ann/a", include_spec=True)
    assert (told.spec.replicas, "hush" in str(told)) == (2, False)
    assert not user.jobs.ListJobs(pb.ListJobsRequest()).jobs[0].HasField("spec")


def test_a_wait_needs_a_job_and_ends_with_its_time_or_the_first_end(user: Any, worker: ScriptedWorker) -> None:
    user.submit("/ann/a")
    code, text = refused(lambda: user.wait())
    assert (code, text) == (grpc.StatusCode.INVALID_ARGUMENT, "WaitJobs names no job; give at least one")
    for timeout_ms in (0, -5, 10):
        reply = user.wait("/ann/a", timeout_ms=timeout_ms)
        assert (reply.done, reply.jobs[0].job_id) == (False, "/ann/a")
    assert refused(lambda: user.wait("/ann/a", "/ann/x"))[0] is grpc.StatusCode.NOT_FOUND
    user.submit("/ann/b")
    worker.wait_for_start("/ann/b/0:0")
    worker.observe("/ann/b/0:0", SUCCEEDED)
    first = user.wait("/ann/a", "/ann/b", any=True)
    assert (first.done, [job.state for job in first.jobs]) == (True, [pb.JOB_STATE_BUILDING, pb.JOB_STATE_SUCCEEDED])
    assert not user.wait("/ann/a", "/ann/b", timeout_ms=20).done


def test_a_failed_task_fails_the_job_and_its_exception_is_kept_for_its_user_alone(
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
    user.submit("/ann/pair", replicas=2)
    worker.wait_for_start("/ann/pair/1:0")
    worker.observe("/ann/pair/1:0", FAILED, exit_code=3, failure=pb.FAILURE_KIND_USER)
    assert worker.wait_for_stop("/ann/pair/0:0").grace_ms == 5000
    worker.observe("/ann/pair/0:0", KILLED)
    status = user.wait_one("/ann/pair")
    assert (status.state, status.exit_code, status.deciding_task_id) == (pb.JOB_STATE_FAILED, 3, "/ann/pair/1")
    assert status.error == "task 1 failed: exit code 3"
    assert refused(lambda: exception_of(admin, "/ann/a"))[0] is grpc.StatusCode.PERMISSION_DENIED
    assert exception_of(user, "/ann/a", 17) == b"", "another job of that name was meant"
    assert user.logs("/ann/a") == []


def test_logs_come_as_they_were_written(user: Any, worker: ScriptedWorker) -> None:
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
    (batch,) = user.jobs.FetchLogs(pb.FetchLogsRequest(id="/ann/a"))
    assert list(batch.parts) == [
        pb.LogPart(task_id="/ann/a/0", records=log),
        pb.LogPart(task_id="/ann/a/1", records=other),
    ]
    assert user.logs("/ann/a/1") == [b"other"]
    assert user.logs("/ann/a", since_ms=8) == [b"lost", b"other"]
    user.submit("/ann/a/b", cpu_millis=0)
    worker.wait_for_start("/ann/a/b/0:0")
    worker.append_log("/ann/a/b/0:0", 0, encode(False, 10, b"below"))
    worker.wait_for_log_ack("/ann/a/b/0:0", len(encode(False, 10, b"below")))
    assert user.logs("/ann/a", include_children=True)[-2:] == [b"other", b"below"]
    assert user.logs("/ann/a/1", include_children=True) == [b"other"], "a task's log is without the jobs below"
    for query in ({"max_lines": -1}, {"since_ms": -1}):
        code, text = refused(lambda query=query: user.logs("/ann/a", **query))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert text.endswith("must be 0 or more")


def test_a_replacement_that_is_refused_leaves_the_live_job_alone(user: Any, admin: Any, worker: ScriptedWorker) -> None:
    user.submit("/ann/a")
    worker.wait_for_start("/ann/a/0:0")
    code, text = refused(lambda: user.submit("/ann/a", existing=REPLACE, cpu_millis=10**9))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "can never run" in text
    budget = pb.UserBudget(user="ann", max_band=pb.PRIORITY_BAND_BATCH)
    admin.stubs.cluster.SetBudget(pb.SetBudgetRequest(budget=budget))
    urgent = {"band": pb.PRIORITY_BAND_PRODUCTION, "existing": REPLACE}
    assert refused(lambda: user.submit("/ann/a", **urgent))[0] is grpc.StatusCode.PERMISSION_DENIED
    assert user.get("/ann/a").state in (pb.JOB_STATE_BUILDING, pb.JOB_STATE_RUNNING)
    assert not worker.stops


def test_reserved_accelerators_are_held_but_not_attached(controller: RunningController, user: Any) -> None:
    gpus = pb.Device(kind="gpu", variant="H100", count=8)
    capacity = pb.Resources(cpu_millis=8000, memory_bytes=8 << 30, disk_bytes=8 << 30, device=gpus)
    with ScriptedWorker(controller.address, controller.worker_token("w1"), capacity=capacity) as worker:
        user.submit("/ann/holds", reserve=True, resources=pb.Resources(cpu_millis=1000, device=gpus))
        start = worker.wait_for_start("/ann/holds/0:0")
        assert not start.launch.resources.HasField("device")
        one = pb.Device(kind="gpu", variant="H100", count=1)
        user.submit("/ann/other", resources=pb.Resources(cpu_millis=1000, device=one))
        assert "worker w1 has 0 of 8 free" in user.get("/ann/other").pending_reason
        user.submit("/ann/holds/reserve-0", reserve=True, resources=pb.Resources(device=gpus))
        text = refused(lambda: user.submit("/ann/holds/reserve-1", reserve=True, resources=pb.Resources(device=gpus)))[
            1
        ]
        assert text == (
            "job /ann/holds/reserve-1 can never hold its reservation: needs 2 tasks with 8 x gpu H100 at once; the "
            "cluster has room for 1"
        )
    code, text = refused(lambda: user.submit("/ann/nothing", reserve=True))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "no accelerator is requested" in text


def send_blob(user: Any, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    starts = range(0, len(data), CHUNK)
    chunks = [
        pb.BlobChunk(digest=digest, offset=at, data=data[at : at + CHUNK], last=at + CHUNK >= len(data))
        for at in starts
    ]
    user.blobs.UploadBlobs(pb.UploadBlobsRequest(chunks=[chunk]) for chunk in chunks)
    return digest


def submit(user: Any, name: str, **fields: Any) -> None:
    call = pb.Callable(payload_digest=send_blob(user, b"a pickled call"))
    user.submit(name, entrypoint=pb.Entrypoint(callable=call), **fields)


def end(user: Any, worker: ScriptedWorker, name: str, **fields: Any) -> None:
    submit(user, name)
    worker.wait_for_start(f"{name}/0:0")
    worker.observe(f"{name}/0:0", SUCCEEDED, **fields)
    user.wait_one(name)


def result_of(caller: Any, name: str, submitted_at_ms: int, task_index: int = 0) -> bytes:
    data = b""
    while True:
        request = pb.GetResultRequest(
            job_id=name, submitted_at_ms=submitted_at_ms, task_index=task_index, offset=len(data)
        )
        reply = caller.jobs.GetResult(request)
        assert len(reply.data) <= CHUNK
        data += reply.data
        if len(data) >= reply.size:
            return data


def own_result(user: Any, name: str) -> bytes:
    return result_of(user, name, user.get(name).submitted_at_ms)


def test_small_large_and_none_which_none_that_is_not_known_is_not(user: Any, worker: ScriptedWorker) -> None:
    large = b"3.12\n" + os.urandom(3 * CHUNK)
    end(user, worker, "/ann/small", result=SMALL)
    end(user, worker, "/ann/large", result_digest=send_blob(user, large))
    end(user, worker, "/ann/none")
    end(user, worker, "/ann/gone", result_digest="0" * 64)
    assert own_result(user, "/ann/gone").startswith(b"! the controller could not keep it")
    assert own_result(user, "/ann/small") == SMALL
    assert own_result(user, "/ann/large") == large
    assert own_result(user, "/ann/none") == b""
    assert user.logs("/ann/small") == []


def test_it_is_for_its_user_and_for_the_job_that_is_meant(user: Any, admin: Any, worker: ScriptedWorker) -> None:
    end(user, worker, "/ann/a", result=SMALL)
    at = user.get("/ann/a").submitted_at_ms
    assert refused(lambda: result_of(admin, "/ann/a", at))[0] is grpc.StatusCode.PERMISSION_DENIED
    code, text = refused(lambda: result_of(user, "/ann/a", 17))
    assert (code, "another job has its name" in text) == (grpc.StatusCode.NOT_FOUND, True)
    code, text = refused(lambda: result_of(user, "/ann/a", at, 1))
    assert (code, "has tasks 0 to 0, not 1" in text) == (grpc.StatusCode.INVALID_ARGUMENT, True)


def test_what_has_none_says_so(user: Any, worker: ScriptedWorker) -> None:
    user.submit("/ann/program", argv=("train", "--fast"))
    at = user.get("/ann/program").submitted_at_ms
    code, text = refused(lambda: result_of(user, "/ann/program", at))
    assert (code, "the program 'train', which returns no value" in text) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    submit(user, "/ann/fails")
    worker.wait_for_start("/ann/fails/0:0")
    assert "it is" in refused(lambda: own_result(user, "/ann/fails"))[1]
    worker.observe("/ann/fails/0:0", FAILED, exit_code=1, result=SMALL)
    user.wait_one("/ann/fails")
    assert refused(lambda: own_result(user, "/ann/fails")) == (
        grpc.StatusCode.NOT_FOUND,
        "task /ann/fails/0 has no result: it is failed",
    )


def test_it_goes_with_its_job_and_stays_without_its_blob(tmp_path: Path) -> None:
    store, blob = LogStore(tmp_path / "logs"), tmp_path / "blob"
    blob.write_bytes(b"3.12\nlarge")
    store.keep_result_file(("/ann/a", 0, 0), blob)
    blob.unlink()
    assert store.read_result(("/ann/a", 0, 0), 5, 2) == (b"la", 10)
    assert store.read_result(("/ann/a", 0, 1), 0, 2) == (b"", 0)
    again = LogStore(tmp_path / "logs")
    assert list(again.stored_jobs()) == ["/ann/a"], "it is found although the task wrote nothing"
    again.remove("/ann/a")
    assert not list((tmp_path / "logs").iterdir())


def test_where_results_were_lost_with_their_disk_none_is_not_told(tmp_path: Path) -> None:
    """A controller that takes over from the remote state knows the jobs, and has none of the files."""
    first = LogStore(tmp_path / "logs")
    first.begin_results(1000)
    again = LogStore(tmp_path / "logs")
    again.begin_results(5000)
    elsewhere = LogStore(tmp_path / "other" / "logs")
    elsewhere.begin_results(5000)
    assert (first.results_since_ms, again.results_since_ms, elsewhere.results_since_ms) == (1000, 1000, 5000)


class Disk:
    def __init__(self) -> None:
        self.states: dict[str, int] = {}

    def commit(self, changes: Changes) -> None:
        self.states.update((job_id, int(job.state)) for job_id, job in changes.jobs.items())


@pytest.mark.parametrize(
    ("who", "attempt", "lends"),
    [
        (Principal(PrincipalKind.JOB, "/ann/a"), "/ann/a/0:0", True),
        (Principal(PrincipalKind.JOB, "/ann/a"), "/ann/a/0:1", False),
        (Principal(PrincipalKind.JOB, "/ann/a"), "/ann/a/7:0", False),
        (Principal(PrincipalKind.JOB, "/ann/a"), "/ann/none/0:0", False),
        (Principal(PrincipalKind.JOB, "/ann/a"), "no attempt", False),
        (Principal(PrincipalKind.JOB, "/ann/a"), "", False),
        (Principal(PrincipalKind.JOB, "/ann/other"), "/ann/a/0:0", False),
        (Principal(PrincipalKind.USER, "/ann/a"), "/ann/a/0:0", False),
    ],
)
@pytest.mark.parametrize("state", [TaskState.RUNNING, TaskState.SUCCEEDED])
def test_a_live_attempt_lends_its_cpu_as_it_waits(who: Principal, attempt: str, lends: bool, state: TaskState) -> None:
    cluster, told = InMemoryCluster(), list[object]()
    cluster.connect("w", resources(8, 8))
    cluster.submit("/ann/a", replicas=2)
    cluster.schedule()
    cluster.observe("/ann/a/0:0", state)
    engine = SimpleNamespace(post=told.append)
    service = JobService(SimpleNamespace(engine=engine, view=cluster.view))

    def lend() -> list[object]:
        serve_for(who)
        with service._lending(SimpleNamespace(invocation_metadata=lambda: ((ATTEMPT_ID_KEY, attempt),))):
            return list(told)

    during = contextvars.copy_context().run(lend)
    mine = AttemptId("/ann/a/0:0")
    expected = [LendCpu(mine, True), LendCpu(mine, False)] if lends and state is TaskState.RUNNING else []
    assert (during, told) == (expected[:1], expected)


async def test_a_wait_that_is_over_tells_only_what_is_committed() -> None:
    """Of several jobs one may have moved during the wait, in a batch that is still kept open for others."""
    serve_for(Principal(PrincipalKind.USER, "ann"))
    view, disk = ClusterView(), Disk()
    engine = Engine(view, disk, lambda: 1000, lambda _: None, share_commit_s=3600)
    waiters = JobWaiters(view)
    engine.listen(waiters.on_effects)
    engine.watch(waiters.completes)
    service = JobService(SimpleNamespace(engine=engine, view=view, waiters=waiters, pending_reason=lambda _: ""))
    await engine.submit(WorkerConnected(WORKER, "one", Resources(cpu_millis=8000)))
    names = ["/ann/a", "/ann/b"]
    for name in names:
        spec = JobSpec(JobId(name), CommandEntrypoint(("true",)), Resources(cpu_millis=1))
        await engine.submit(JobSubmitted(spec))
    request = pb.WaitJobsRequest(job_ids=names, timeout_ms=20)
    waiting = asyncio.create_task(service.WaitJobs(request, SimpleNamespace(invocation_metadata=lambda: ())))
    await asyncio.sleep(0)  # it waits now
    engine.post(AttemptObserved(AttemptId("/ann/a/0:0"), WORKER, TaskState.RUNNING, at_ms=1))
    reply = await waiting
    assert not reply.done
    assert [status.state for status in reply.jobs] == [pb.JOB_STATE_RUNNING, pb.JOB_STATE_BUILDING]
    assert disk.states == {status.job_id: status.state for status in reply.jobs}
    engine.close()
