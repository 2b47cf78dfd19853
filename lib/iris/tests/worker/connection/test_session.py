"""The worker against a real gRPC controller that hangs up, forgets and restarts on purpose."""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from iris.domain.states import FailureKind, TaskState
from iris.rpc import iris_pb2 as pb
from iris.rpc.auth import attempt_token
from iris.rpc.protocol import PROTOCOL_VERSION
from iris.testing.worker_fixtures import FakeController, InProcessWorker, run_command
from iris.worker.connection.agent import AgentEnd
from rigging.testing import eventually

pytestmark = pytest.mark.e2e

Scenario = Callable[[FakeController, InProcessWorker], Awaitable[None]]
Play = Callable[[Scenario], None]
JOB = "/user/job/0:0"


def sh(script: str, **options: object) -> pb.RunAttempts:
    return run_command("sh", "-c", script, **options)  # type: ignore[arg-type]


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_hello_says_who_the_worker_is(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        (hello,) = controller.hellos
        assert (hello.worker_id, hello.protocol_version) == ("w1", PROTOCOL_VERSION)
        assert hello.capacity.cpu_millis == 2000
        assert dict(hello.attributes) == {"os": "linux"}

    play(scenario)


def test_exit_code_output_and_forget(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[sh("echo out; echo err >&2; exit 3")])
        (end,) = await controller.until_ended(JOB)
        assert (end.state, end.exit_code, end.error) == (TaskState.FAILED, 3, "exit code 3")
        assert end.failure == FailureKind.USER
        assert controller.output(JOB) == b"out\n"
        assert controller.output(JOB, stderr=True) == b"err\n"
        assert any(worker.paths.logs.iterdir())
        controller.send(forget=[JOB])
        await controller.until(lambda: controller.applied_revision == 2)
        assert worker.supervisor.inventory() == []
        for directory in (worker.paths.logs, worker.paths.tokens, worker.paths.errors):
            assert list(directory.iterdir()) == []

    play(scenario)


def test_a_short_task_is_told_by_its_end_alone(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[run_command("true", indexes=range(30))])
        ends = await controller.until_ended(*(f"/user/job/{index}:0" for index in range(30)))
        assert {end.state for end in ends} == {TaskState.SUCCEEDED}
        assert controller.messages < 40

    play(scenario)


def test_a_long_task_is_reported_running_with_its_pid(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[sh("exec sleep 1000")])
        await controller.until(lambda: JOB in controller.observations)
        observation = controller.observations[JOB]
        assert observation.state == TaskState.RUNNING
        assert alive(observation.pid)
        controller.send(stop=[pb.StopAttempt(attempt_id=JOB, grace_ms=5000, reason="stopped by user")])
        (end,) = await controller.until_ended(JOB)
        assert (end.state, end.exit_signal, end.error) == (TaskState.KILLED, signal.SIGTERM, "stopped by user")
        assert not alive(observation.pid)

    play(scenario)


def test_stop_of_a_task_that_ignores_it_ends_after_the_grace(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[sh("trap 'echo asked' TERM; echo ready; while true; do sleep 0.02; done")])
        await controller.until(lambda: controller.output(JOB) == b"ready\n")
        controller.send(stop=[pb.StopAttempt(attempt_id=JOB, grace_ms=200, reason="stop")])
        (end,) = await controller.until_ended(JOB)
        assert (end.state, end.exit_signal) == (TaskState.KILLED, signal.SIGKILL)
        assert controller.output(JOB) == b"ready\nasked\n"

    play(scenario)


def test_a_command_that_does_not_exist_cannot_start(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[run_command("no-such-command", "x")])
        (end,) = await controller.until_ended(JOB)
        assert (end.state, end.failure) == (TaskState.FAILED, FailureKind.START)
        assert end.error.startswith("command 'no-such-command' not found; looked in PATH=")
        assert end.error.encode() in controller.output(JOB, stderr=True)

    play(scenario)


def test_the_tasks_own_words_become_the_error(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[sh("echo 'ValueError: too warm' > $IRIS_ERROR_FILE; exit 1")])
        (end,) = await controller.until_ended(JOB)
        assert end.error == "ValueError: too warm"

    play(scenario)


def test_what_a_task_sees(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "s3cret")
    monkeypatch.setenv("UV_CACHE_DIR", "/uv-cache")

    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        environment = pb.Environment(env_vars={"COLOUR": "red", "IRIS_JOB_ID": "/forged/job"})
        program = (
            "import json, os; print(json.dumps({**os.environ, 'token': open(os.environ['IRIS_TOKEN_FILE']).read()}))"
        )
        controller.send(
            run=[run_command("python", "-c", program, indexes=[4], environment=environment, ports=["http", "my-rpc"])]
        )
        await controller.until_ended("/user/job/4:0")
        env = json.loads(controller.output("/user/job/4:0"))
        assert env["token"] == attempt_token("j:/user/job:token", "/user/job/4:0")
        assert "SECRET_OF_THE_WORKER" not in env
        assert (env["COLOUR"], env["UV_CACHE_DIR"], env["PYTHONUNBUFFERED"]) == ("red", "/uv-cache", "1")
        assert (env["IRIS_JOB_ID"], env["IRIS_TASK_ID"], env["IRIS_TASK_INDEX"]) == ("/user/job", "/user/job/4", "4")
        assert (env["IRIS_ATTEMPT_ID"], env["IRIS_WORKER_ID"]) == ("/user/job/4:0", "w1")
        assert env["IRIS_CONTROLLER_ADDRESS"] == f"127.0.0.1:{controller.port}"
        assert int(env["IRIS_PORT_HTTP"]) != int(env["IRIS_PORT_MY_RPC"])
        assert os.stat(env["IRIS_TOKEN_FILE"]).st_mode & 0o777 == 0o600

    play(scenario)


def test_ten_megabytes_of_lines_arrive_whole_before_the_end(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[run_command("seq", "-f", "%099.0f", "100000")])
        (end,) = await controller.until_ended(JOB)
        assert end.state == TaskState.SUCCEEDED
        assert controller.output(JOB) == b"".join(b"%099d\n" % i for i in range(1, 100_001))

    play(scenario)


def test_binary_output_and_a_line_without_end(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        program = "import os, time; os.write(1, bytes(range(256)) * 300 + b'\\ntail')"
        controller.send(run=[run_command("python", "-c", program)])
        await controller.until_ended(JOB)
        assert controller.output(JOB) == bytes(range(256)) * 300 + b"\ntail\n"

    play(scenario)


def test_an_unfinished_line_is_shown_while_the_task_runs(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[sh("printf 'continue? '; exec sleep 1000")])
        await controller.until(lambda: controller.output(JOB) == b"continue? ")
        assert controller.records(JOB)[-1].partial

    play(scenario)


def test_a_disconnection_during_output_loses_and_repeats_nothing(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[run_command("seq", "-f", "%099.0f", "40000")])
        cuts = 0
        while not controller.has_ended(JOB):
            before = controller.log_bytes_received
            await controller.until(lambda b=before: controller.log_bytes_received > b or controller.has_ended(JOB))
            if cuts < 4 and not controller.has_ended(JOB):
                cuts += 1
                await controller.stop()
                await controller.start()
        assert cuts == 4
        assert controller.output(JOB) == b"".join(b"%099d\n" % i for i in range(1, 40_001))

    play(scenario)


def test_a_controller_that_lost_log_bytes_is_sent_them_again(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[sh("seq 1000")])
        await controller.until_ended(JOB)
        await controller.stop()
        controller.log_must_come_first = False
        whole = bytes(controller.logs[JOB])
        del controller.logs[JOB][100:]
        await controller.start()
        await controller.until(lambda: len(controller.logs[JOB]) == len(whole))
        assert controller.logs[JOB] == whole

    play(scenario)


def test_an_attempt_that_ends_while_the_controller_is_down_is_told_at_the_next_hello(
    play: Play, tmp_path: Path
) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        fifo = tmp_path / "go"
        os.mkfifo(fifo)
        controller.send(run=[sh(f"echo before; read x < {fifo}; echo $x; exit 5")])
        await controller.until(lambda: controller.output(JOB) == b"before\n")
        await controller.stop()
        await asyncio.to_thread(fifo.write_text, "after\n")
        # Nobody tells of it while there is no controller.
        await asyncio.to_thread(eventually, lambda: worker.supervisor.live_count == 0, "the task has ended")
        await controller.start()
        (end,) = await controller.until_ended(JOB)
        assert end.exit_code == 5
        assert controller.output(JOB) == b"before\nafter\n"
        assert controller.hellos[-1].instance_id == controller.hellos[0].instance_id
        # Its log had not arrived yet, and a controller that hears of an end may say "forget" at once.
        assert [o.state for o in controller.hellos[-1].inventory] == [TaskState.RUNNING]
        controller.send()  # applied after the acknowledgement of the log, which was sent before
        await controller.until(lambda: controller.applied_revision == 2)
        await controller.stop()
        await controller.start()
        await controller.until(lambda: len(controller.hellos) == 3)
        assert [o.state for o in controller.hellos[-1].inventory] == [TaskState.FAILED]

    play(scenario)


def test_a_repeated_start_starts_nothing_and_tells_again(play: Play, tmp_path: Path) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        request = sh(f"echo run >> {tmp_path}/runs")
        controller.send(run=[request])
        await controller.until_ended(JOB)
        controller.send(run=[request, request])
        await controller.until(lambda: len(controller.states[JOB]) >= 2)
        assert controller.states[JOB][-1] == TaskState.SUCCEEDED
        assert (tmp_path / "runs").read_text() == "run\n"

    play(scenario)


def test_a_later_attempt_of_the_task_is_another_one(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[sh("exit 1")])
        await controller.until_ended(JOB)
        controller.send(run=[sh("echo again", attempt=1)], forget=[JOB])
        (end,) = await controller.until_ended("/user/job/0:1")
        assert end.state == TaskState.SUCCEEDED
        assert controller.output("/user/job/0:1") == b"again\n"

    play(scenario)


def test_a_later_attempt_waits_until_the_one_that_it_supersedes_is_gone(play: Play, tmp_path: Path) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        mark = tmp_path / "former"
        controller.send(run=[sh(f"echo $$ > {mark}; trap '' TERM; while :; do sleep 0.02; done")])
        await asyncio.to_thread(eventually, lambda: mark.exists() and mark.read_text(), "it has begun")
        controller.send(run=[sh(f"kill -0 $(cat {mark}) && echo beside || echo alone", attempt=1)])
        former, _ = await controller.until_ended(JOB, "/user/job/0:1")
        assert (former.state, former.error) == (TaskState.KILLED, "superseded by /user/job/0:1")
        assert controller.output("/user/job/0:1") == b"alone\n"

    play(scenario)


def test_a_stop_for_something_unknown_is_answered_so_that_nothing_waits_for_it(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(stop=[pb.StopAttempt(attempt_id="/user/gone/0:3", reason="parent ended")])
        (end,) = await controller.until_ended("/user/gone/0:3")
        assert (end.state, end.error) == (TaskState.KILLED, "parent ended")

    play(scenario)


def test_a_running_attempt_cannot_be_forgotten(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[sh("exec sleep 1000")])
        await controller.until(lambda: JOB in controller.observations)
        controller.send(forget=[JOB])
        await controller.until(lambda: controller.applied_revision == 2)
        assert worker.supervisor.live_count == 1

    play(scenario)


def test_start_and_stop_in_one_message(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send(run=[sh("exec sleep 1000")], stop=[pb.StopAttempt(attempt_id=JOB, reason="changed my mind")])
        (end,) = await controller.until_ended(JOB)
        assert (end.state, end.error, end.pid) == (TaskState.KILLED, "changed my mind", 0)

    play(scenario)


def test_heartbeats_come_without_news(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        await controller.stop()
        controller.heartbeat_ms = 20
        await controller.start()
        await controller.until(lambda: controller.heartbeats >= 3)
        assert (len(controller.hellos), controller.observations) == (2, {})

    play(scenario)


def test_goodbye_with_exit_ends_the_agent(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        controller.send_message(pb.ControllerMessage(goodbye=pb.Goodbye(reason="cluster stops", exit=True)))
        assert await asyncio.wait_for(worker.serving, 10) is AgentEnd.GOODBYE

    play(scenario)


def test_a_controller_of_another_version_is_refused_naming_both(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        await controller.stop()
        controller.protocol_version = 99
        await controller.start()
        assert await asyncio.wait_for(worker.serving, 10) is AgentEnd.INCOMPATIBLE
        assert "this worker speaks protocol version 2, this controller 99: upgrade this worker" in caplog.text

    play(scenario)


def test_a_device_error_is_told_apart_from_the_users_failure(play: Play) -> None:
    async def scenario(controller: FakeController, worker: InProcessWorker) -> None:
        run = sh("echo 'The TPU is already in use by process with pid 7' >&2; exit 1")
        run.launch.resources.device.CopyFrom(pb.Device(kind="tpu", variant="v5p-8", count=4))
        controller.send(run=[run])
        (end,) = await controller.until_ended(JOB)
        assert (end.state, end.failure) == (TaskState.FAILED, FailureKind.DEVICE)
        assert end.error == "device error: The TPU is already in use by process with pid 7"

    play(scenario)
