"""Workers that come, go, and come back; controllers that are killed."""

from pathlib import Path
from typing import Any

import grpc
import pytest

from iris.rpc import iris_pb2 as pb
from iris.rpc.auth import PrincipalKind
from iris.rpc.logformat import encode
from iris.testing.controller import RunningController, running_controller
from iris.testing.worker import ScriptedWorker
from rigging.errors import InvalidRequest
from rigging.testing import eventually

SUCCEEDED, RUNNING = pb.TASK_STATE_SUCCEEDED, pb.TASK_STATE_RUNNING
FAST = {"heartbeat_interval_s": 0.05, "worker_timeout_s": 0.4}


def worker_of(controller: RunningController, **settings: Any) -> ScriptedWorker:
    return ScriptedWorker(controller.address, controller.worker_token("w1"), **settings)


def running(attempt_id: str) -> pb.Observation:
    return pb.Observation(attempt_id=attempt_id, state=RUNNING)


def test_a_killed_controller_comes_back_with_the_running_task(tmp_path: Path, connect: Any) -> None:
    with running_controller(tmp_path / "state") as controller:
        user = connect(controller)
        with worker_of(controller) as worker:
            user.submit("/ann/done")
            worker.wait_for_start("/ann/done/0:0")
            worker.observe("/ann/done/0:0", SUCCEEDED)
            user.wait_one("/ann/done")
            user.submit("/ann/a", replicas=2)
            worker.wait_for_start("/ann/a/1:0")
            worker.observe("/ann/a/0:0", RUNNING)
            worker.observe("/ann/a/1:0", RUNNING)

            def both_run() -> bool:
                status = user.get("/ann/a")
                return status.state == pb.JOB_STATE_RUNNING and [count.count for count in status.task_counts] == [2]

            eventually(both_run, "both tasks run")
            before = [user.get("/ann/done"), user.get("/ann/a")]
            controller.crash()
    with running_controller(tmp_path / "state") as controller:
        user = connect(controller)
        assert [user.get("/ann/done"), user.get("/ann/a")] == before
        ended = pb.Observation(attempt_id="/ann/a/1:0", state=SUCCEEDED)
        with worker_of(controller, inventory=[running("/ann/a/0:0"), ended]) as worker:
            worker.wait_for_forget("/ann/a/1:0")
            worker.observe("/ann/a/0:0", SUCCEEDED)
            assert user.wait_one("/ann/a").state == pb.JOB_STATE_SUCCEEDED
            assert worker.starts == []
        assert [user.task(f"/ann/a/{i}").attempt for i in (0, 1)] == [0, 0]


def test_a_start_that_never_arrived_is_sent_again(controller: RunningController, user: Any) -> None:
    with worker_of(controller) as worker:
        user.submit("/ann/a")
        worker.wait_for_start("/ann/a/0:0")
    with worker_of(controller) as worker:
        worker.wait_for_start("/ann/a/0:0")
        assert [start.attempt_id for start in worker.starts] == ["/ann/a/0:0"]


def test_those_who_start_a_cluster_are_told_of_its_workers(controller: RunningController) -> None:
    with worker_of(controller), worker_of(controller):
        assert controller.workers_seen == ["w1", "w1"]


def test_attempts_of_a_restarted_worker_are_retried(controller: RunningController, user: Any) -> None:
    with worker_of(controller) as worker:
        user.submit("/ann/a")
        worker.wait_for_start("/ann/a/0:0")
    with worker_of(controller, instance_id="second") as worker:
        worker.wait_for_start("/ann/a/0:1")
        assert list(user.task("/ann/a/0").causes) == ["attempt 0 on w1: its worker restarted"]


def test_attempts_nobody_knows_are_stopped_or_forgotten(controller: RunningController, user: Any) -> None:
    ended = pb.Observation(attempt_id="/ann/gone/1:0", state=SUCCEEDED, log_size=100)
    with worker_of(controller, inventory=[running("/ann/gone/0:0"), ended]) as worker:
        assert worker.wait_for_stop("/ann/gone/0:0").reason == "the controller does not know this attempt"
        worker.wait_for_forget("/ann/gone/1:0")
        assert worker.forgotten == ["/ann/gone/1:0"]


def test_a_stop_that_was_missed_is_repeated(controller: RunningController, user: Any) -> None:
    with worker_of(controller) as worker:
        user.submit("/ann/a")
        worker.wait_for_start("/ann/a/0:0")
    user.stop("/ann/a")
    with worker_of(controller, inventory=[running("/ann/a/0:0")]) as worker:
        worker.wait_for_stop("/ann/a/0:0")
        worker.observe("/ann/a/0:0", pb.TASK_STATE_KILLED)
        assert user.wait_one("/ann/a").state == pb.JOB_STATE_KILLED


def test_a_newer_stream_of_the_same_worker_closes_the_older(controller: RunningController, user: Any) -> None:
    with worker_of(controller) as older, worker_of(controller, instance_id="second") as newer:
        older.wait_for_end()
        user.submit("/ann/a")
        newer.wait_for_start("/ann/a/0:0")
        assert older.starts == []
        (info,) = user.cluster.Status(pb.ClusterStatusRequest()).workers
        assert info.connected


def test_a_silent_worker_is_lost_and_its_tasks_go_elsewhere(tmp_path: Path, connect: Any) -> None:
    with running_controller(tmp_path / "state", **FAST) as controller:
        user = connect(controller)
        with worker_of(controller) as silent:
            user.submit("/ann/a")
            silent.wait_for_start("/ann/a/0:0")
            silent.observe("/ann/a/0:0", RUNNING)
            with ScriptedWorker(controller.address, controller.worker_token("w2"), "w2") as other:

                def beat() -> bool:
                    other.send(pb.WorkerMessage())  # heartbeats of this one only
                    return any(start.attempt_id == "/ann/a/0:1" for start in other.starts)

                other.wait(beat, "retry")
                silent.wait_for_end()
        assert user.task("/ann/a/0").causes[0] == "attempt 0 on w1: worker w1 was not heard for 0.4 s"


def test_what_only_a_worker_lost_lately_could_run_is_accepted_and_waits_for_it(tmp_path: Path, connect: Any) -> None:
    with running_controller(tmp_path / "state", **FAST) as controller:
        user = connect(controller)
        large = pb.Resources(cpu_millis=64_000, memory_bytes=8 * 2**30, disk_bytes=100 * 2**30)
        with worker_of(controller, capacity=large) as worker:
            user.submit("/ann/a")
            worker.wait_for_start("/ann/a/0:0")
        with ScriptedWorker(controller.address, controller.worker_token("w2"), "w2") as small:

            def retried() -> bool:
                small.send(pb.WorkerMessage())  # a heartbeat
                return any(start.attempt_id == "/ann/a/0:1" for start in small.starts)

            small.wait(retried, "the retry: w1 is lost")
            user.submit("/ann/b", cpu_millis=64_000)
            with pytest.raises(grpc.RpcError, match=r"can never run: needs 65 cores; the largest worker \(w1\) has 64"):
                user.submit("/ann/c", cpu_millis=65_000)
            with worker_of(controller, capacity=large, instance_id="second") as again:
                again.wait_for_start("/ann/b/0:0")


def test_a_worker_that_does_not_come_back_after_a_restart_is_lost(tmp_path: Path, connect: Any) -> None:
    with running_controller(tmp_path / "state") as controller, worker_of(controller) as worker:
        user = connect(controller)
        user.submit("/ann/a", max_retries_preemption=0)
        worker.wait_for_start("/ann/a/0:0")
        worker.observe("/ann/a/0:0", RUNNING)
        eventually(lambda: user.get("/ann/a").state == pb.JOB_STATE_RUNNING, "it runs")
        controller.crash()
    with running_controller(tmp_path / "state", **FAST) as controller:
        status = connect(controller).wait_one("/ann/a")
        assert status.state == pb.JOB_STATE_WORKER_FAILED
        assert "worker w1 was not heard for 0.4 s" in status.error


def test_both_sides_hear_heartbeats(tmp_path: Path) -> None:
    with running_controller(tmp_path / "state", **FAST) as controller, worker_of(controller) as worker:
        assert worker.welcome is not None
        assert worker.welcome.heartbeat_interval_ms == 50
        worker.wait(lambda: worker.heartbeats >= 2, "two heartbeats")


def test_an_orderly_stop_sends_workers_away_without_ending_them(tmp_path: Path) -> None:
    with running_controller(tmp_path / "state") as controller, worker_of(controller) as worker:
        controller.stop()
        worker.wait_for_end()
        assert worker.goodbye is not None
        assert not worker.goodbye.exit


def test_the_end_of_an_attempt_counts_when_its_whole_log_is_here(controller: RunningController, user: Any) -> None:
    log = encode(False, 1, b"first") + encode(False, 2, b"last")
    with worker_of(controller) as worker:
        user.submit("/ann/a")
        worker.wait_for_start("/ann/a/0:0")
        worker.observe("/ann/a/0:0", SUCCEEDED, log_size=len(log))
        worker.append_log("/ann/a/0:0", 0, log[:10])
        worker.wait_for_log_ack("/ann/a/0:0", 10)
        assert not user.wait("/ann/a", timeout_ms=30).done
    ended = pb.Observation(attempt_id="/ann/a/0:0", state=SUCCEEDED, log_size=len(log))
    with worker_of(controller, inventory=[ended]) as worker:
        assert worker.welcome is not None
        assert [(ack.attempt_id, ack.offset) for ack in worker.welcome.log_offsets] == [("/ann/a/0:0", 10)]
        assert not user.wait("/ann/a", timeout_ms=30).done
        worker.append_log("/ann/a/0:0", 10, log[10:])
        user.wait_one("/ann/a")
        worker.wait_for_forget("/ann/a/0:0")
    assert user.logs("/ann/a") == [b"first", b"last"]


def test_the_end_of_an_attempt_waits_for_a_lost_log_only_so_long(tmp_path: Path, connect: Any) -> None:
    with running_controller(tmp_path / "state", log_wait_s=0.1) as controller, worker_of(controller) as worker:
        user = connect(controller)
        user.submit("/ann/a")
        worker.wait_for_start("/ann/a/0:0")
        worker.observe("/ann/a/0:0", SUCCEEDED, log_size=1000)
        assert user.wait_one("/ann/a").state == pb.JOB_STATE_SUCCEEDED


@pytest.mark.parametrize(
    ("settings", "code", "reason"),
    [
        ({"protocol_version": 99}, "FAILED_PRECONDITION", "speaks protocol version 99, this controller 2"),
        (
            {"worker_id": "w2"},
            "PERMISSION_DENIED",
            "may not open sessions as 'w2': each may only speak for itself",
        ),
        ({"instance_id": ""}, "INVALID_ARGUMENT", "gives no instance_id"),
    ],
)
def test_a_wrong_hello_is_refused_with_the_reason(
    controller: RunningController, settings: dict[str, Any], code: str, reason: str
) -> None:
    with worker_of(controller, **settings) as worker:
        worker.wait_for_end()
        assert worker.error is not None
        assert worker.error.code().name == code
        assert reason in worker.error.details()


def test_a_worker_may_have_an_id_of_256_characters_and_no_more(controller: RunningController) -> None:
    for length in (256, 257):
        name = "w" * length
        with ScriptedWorker(controller.address, controller.worker_token(name), name) as worker:
            if length == 256:
                assert worker.welcome.protocol_version
            else:
                worker.wait_for_end()
                assert worker.error is not None
                assert "is no id of a worker: no control characters, and 1 to 256" in worker.error.details()


def test_a_worker_has_an_id_that_a_header_can_carry() -> None:
    from iris.controller.services.worker import check_worker_id

    check_worker_id("rack 4/host_1 $(x)")
    for name in ("", "höst", "a\nb", "\u200b"):
        with pytest.raises(InvalidRequest, match="is no id of a worker: no control characters, and 1 to 256"):
            check_worker_id(name)


def test_calls_without_the_right_token_or_version_are_refused(controller: RunningController, connect: Any) -> None:
    from iris.testing.controller import ControllerStubs

    def refusal(*metadata: tuple[str, str]) -> tuple[grpc.StatusCode, str]:
        stubs = ControllerStubs(controller.address, metadata)
        with pytest.raises(grpc.RpcError) as refused:
            stubs.jobs.ListJobs(pb.ListJobsRequest())
        stubs.close()
        return refused.value.code(), refused.value.details()

    assert refusal() == (grpc.StatusCode.UNAUTHENTICATED, "no token: send metadata 'authorization: Bearer <token>'")
    assert refusal(("authorization", "Basic x"))[0] is grpc.StatusCode.UNAUTHENTICATED
    assert refusal(("authorization", "Bearer u:ann:00"))[1] == "the token of user ann was not made by this cluster"
    good = ("authorization", f"Bearer {controller.user_token}")
    code, details = refusal(good, ("iris-protocol-version", "7"))
    assert (code, details[:58]) == (
        grpc.StatusCode.FAILED_PRECONDITION, "the caller speaks protocol version 7, this controller 2: u",
    )  # fmt: skip
    stranger = connect(controller, PrincipalKind.JOB, "/ann/a")
    for call in (lambda: stranger.get("/bob/x"), lambda: stranger.stop("/bob/x"), lambda: stranger.submit("/ann/b")):
        with pytest.raises(grpc.RpcError) as refused:
            call()
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    with pytest.raises(grpc.RpcError, match="worker w1 may not list jobs: only admins, users and jobs may"):
        connect(controller, PrincipalKind.WORKER, "w1").jobs.ListJobs(pb.ListJobsRequest())


def test_a_worker_that_leaves_gets_nothing_new_and_its_last_reports_count(
    controller: RunningController, user: Any
) -> None:
    """Once, its ended attempts were placed on it again, and it did not get away."""
    with worker_of(controller) as worker:
        user.submit("/ann/a")
        worker.wait_for_start("/ann/a/0:0")
        worker.send(pb.WorkerMessage(leaving=True))
        worker.observe("/ann/a/0:0", pb.TASK_STATE_WORKER_FAILED, failure=pb.FAILURE_KIND_PREEMPTED, error="leaves")
        worker.wait_for_forget("/ann/a/0:0")
        user.submit("/ann/b")
        assert user.get("/ann/a").state == pb.JOB_STATE_PENDING
        assert user.get("/ann/b").pending_reason
        assert [start.attempt_id for start in worker.starts] == ["/ann/a/0:0"]
    with worker_of(controller, instance_id="second") as worker:
        worker.wait_for_start("/ann/a/0:1")


def test_a_beat_is_acknowledged_at_once(tmp_path: Path) -> None:
    # By the acknowledgement the worker's host knows until when it may keep exclusive attempts.
    seldom = {"heartbeat_interval_s": 60, "worker_timeout_s": 120}
    with running_controller(tmp_path / "state", **seldom) as controller, worker_of(controller) as worker:
        worker.beat(7)
        worker.wait_for_beat_ack(7)
        worker.beat(8)
        worker.wait_for_beat_ack(8)
        assert worker.beat_ack == 8


def test_a_beat_on_a_superseded_stream_is_not_acknowledged(controller: RunningController) -> None:
    with worker_of(controller) as older, worker_of(controller, instance_id="second") as newer:
        older.beat(7)
        newer.beat(9)
        newer.wait_for_beat_ack(9)
        older.wait_for_end()
        assert older.beat_ack == 0


def test_the_start_of_an_exclusive_attempt_says_when_its_fence_ends_it(
    controller: RunningController, user: Any, worker: ScriptedWorker
) -> None:
    user.submit("/ann/plain")
    user.submit("/ann/default", exclusive=True, cpu_millis=100)
    user.submit("/ann/short", exclusive=True, fence_after_ms=20_000, cpu_millis=100)
    fences = {}
    for name in ("plain", "default", "short"):
        launch = worker.wait_for_start(f"/ann/{name}/0:0").launch
        fences[name] = (launch.exclusive, launch.fence_after_ms)
    assert fences == {"plain": (False, 0), "default": (True, 600_000), "short": (True, 20_000)}


def test_a_name_that_two_hosts_use_at_once_is_warned_of(
    controller: RunningController, caplog: pytest.LogCaptureFixture
) -> None:
    with worker_of(controller), worker_of(controller, instance_id="second"):
        words = "worker w1 began anew from 127.0.0.1 while its session from 127.0.0.1 was open"
        eventually(lambda: words in caplog.text, "the controller warns of it")
        assert caplog.text.count("began anew") == 1
