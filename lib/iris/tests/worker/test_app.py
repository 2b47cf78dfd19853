"""The worker as a process of its own: its lock, its signals, and what it leaves behind."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from iris.domain.states import FailureKind, TaskState
from iris.rpc import iris_pb2 as pb
from iris.testing.gce_metadata import MetadataServer
from iris.testing.worker_fixtures import FakeController, run_command
from iris.worker.host.preemption import Platform
from iris.worker.paths import WorkPaths
from rigging.testing import eventually

pytestmark = pytest.mark.e2e

JOB = "/user/job/0:0"

MAIN = """
import logging
import sys
import time
from pathlib import Path
from iris.rpc.controller_address import ControllerAddress
from iris.worker.app import WorkerConfig, run_worker
from iris.worker.host.preemption import Platform

logging.basicConfig(level=logging.INFO)
work_dir, port, orphan_timeout, platform = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), Platform(sys.argv[4])
grace = float(sys.argv[5])
config = WorkerConfig(work_dir, "w1", orphan_timeout_s=orphan_timeout, stop_grace_s=grace, platform=platform)


def look() -> ControllerAddress:
    with open(f"{work_dir}.looks", "a") as looks:
        print(time.monotonic(), file=looks)
    return ControllerAddress(f"127.0.0.1:{port}", "w:w1:token")


sys.exit(run_worker(config, look))
"""


class Workers:
    """Starts worker processes on one work directory."""

    def __init__(self, work_dir: Path, controller: FakeController) -> None:
        self.work_dir = work_dir
        self.controller = controller
        self.started: list[subprocess.Popen[str]] = []

    def start(
        self,
        orphan_timeout_s: float = 60,
        platform: Platform = Platform.NONE,
        metadata_host: str = "",
        stop_grace_s: float = 0.2,
    ) -> "subprocess.Popen[str]":
        argv = [sys.executable, "-c", MAIN, str(self.work_dir), str(self.controller.port), str(orphan_timeout_s)]
        process = subprocess.Popen(
            [*argv, platform, str(stop_grace_s)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "GCE_METADATA_HOST": metadata_host},
        )
        self.started.append(process)
        return process

    def looks(self) -> list[float]:
        """When a worker looked for its controller, by its clock in seconds."""
        return [float(line) for line in Path(f"{self.work_dir}.looks").read_text().splitlines()]

    def guardian_pid(self) -> int:
        return int((self.work_dir / "guardian.lock").read_text())

    def end_guardian(self) -> None:
        """Leave nothing behind, whatever the test did."""
        with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
            os.kill(pid := self.guardian_pid(), signal.SIGTERM)
            eventually(lambda: gone(pid), "the guardian has ended")

    async def connected(self, stop_grace_s: float = 0.2) -> "subprocess.Popen[str]":
        hellos = len(self.controller.hellos)
        process = self.start(stop_grace_s=stop_grace_s)
        await self.controller.until(lambda: len(self.controller.hellos) > hellos)
        return process


Play = Callable[[Callable[[FakeController, Workers], Awaitable[None]]], None]


@pytest.fixture
def play_processes(tmp_path: Path) -> Play:
    async def run(scenario: Callable[[FakeController, Workers], Awaitable[None]]) -> None:
        controller = FakeController()
        await controller.start()
        workers = Workers(tmp_path / "work", controller)
        try:
            await scenario(controller, workers)
        finally:
            for process in workers.started:
                process.kill()
                process.communicate()
            workers.end_guardian()
            await controller.stop()

    return lambda scenario: asyncio.run(run(scenario))


async def ended(process: "subprocess.Popen[str]") -> int:
    return await asyncio.wait_for(asyncio.to_thread(process.wait), 15)


async def started_daemon(controller: FakeController) -> tuple[int, int]:
    """Start a task that ignores SIGTERM and has a daemon of its own session; their pids."""
    script = "trap '' TERM; (setsid sleep 1000 & echo $!); echo $$; while true; do sleep 0.05; done"
    controller.send(run=[run_command("sh", "-c", script)])
    await controller.until(lambda: controller.output(JOB).count(b"\n") == 2)
    daemon, leader = (int(line) for line in controller.output(JOB).split())
    return leader, daemon


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may end between open and read
        return True


def test_sigterm_stops_what_runs_and_says_so(play_processes: Play) -> None:
    async def scenario(controller: FakeController, workers: Workers) -> None:
        worker = await workers.connected()
        pids = await started_daemon(controller)
        worker.send_signal(signal.SIGTERM)
        (end,) = await controller.until_ended(JOB)
        assert (end.state, end.failure) == (TaskState.WORKER_FAILED, FailureKind.WORKER)
        assert "worker w1 ended" in end.error
        assert await ended(worker) == 0
        assert all(map(gone, pids))

    play_processes(scenario)


def test_ctrl_c_twice_leaves_at_once_and_says_what_is_still_there(play_processes: Play) -> None:
    async def scenario(controller: FakeController, workers: Workers) -> None:
        worker = await workers.connected(stop_grace_s=30.0)
        leader, daemon = await started_daemon(controller)
        worker.send_signal(signal.SIGINT)
        said = await asyncio.to_thread(_lines_until, worker, "Ctrl-C again leaves at once")
        assert f"its tasks are stopped, within 30 s or so: {JOB}" in said
        worker.send_signal(signal.SIGINT)
        assert await ended(worker) == 130
        assert worker.stdout is not None
        assert (
            f"left at once; still there: {JOB}. Their guardian (process {workers.guardian_pid()})"
            in worker.stdout.read()
        )
        assert not gone(leader)
        # The guardian keeps what was asked of it.
        for pid in (leader, daemon):
            os.kill(pid, signal.SIGKILL)
        await workers.connected()
        (end,) = await controller.until_ended(JOB)
        assert end.state in (TaskState.WORKER_FAILED, TaskState.FAILED)

    play_processes(scenario)


def _lines_until(process: "subprocess.Popen[str]", words: str) -> str:
    assert process.stdout is not None
    said = ""
    while words not in said:
        line = process.stdout.readline()
        assert line, said
        said += line
    return said


def test_a_preempted_host_is_left_at_once(play_processes: Play) -> None:
    async def scenario(controller: FakeController, workers: Workers) -> None:
        with MetadataServer() as metadata:
            worker = workers.start(platform=Platform.GCE, metadata_host=metadata.address)
            await controller.until(lambda: controller.hellos)
            controller.send(run=[run_command("sleep", "1000")])
            await controller.until(lambda: TaskState.RUNNING in controller.states.get(JOB, []))
            metadata.preempt()
            (end,) = await controller.until_ended(JOB)
            assert (end.state, end.failure) == (TaskState.WORKER_FAILED, FailureKind.PREEMPTED)
            assert "the platform takes its host away" in end.error
            assert await ended(worker) == 0

    play_processes(scenario)


def test_a_worker_is_not_preempted_unless_it_is_told_of_its_platform(play_processes: Play) -> None:
    async def scenario(controller: FakeController, workers: Workers) -> None:
        with MetadataServer() as metadata:
            metadata.preempt()
            worker = workers.start(metadata_host=metadata.address)
            await controller.until(lambda: controller.hellos)
            controller.send(run=[run_command("sleep", "1000")])
            await controller.until(lambda: TaskState.RUNNING in controller.states.get(JOB, []))
            worker.send_signal(signal.SIGTERM)
            (end,) = await controller.until_ended(JOB)
            assert end.failure == FailureKind.WORKER
            assert await ended(worker) == 0

    play_processes(scenario)


def test_a_killed_workers_tasks_go_on_and_are_taken_up_by_the_next(play_processes: Play, tmp_path: Path) -> None:
    async def scenario(controller: FakeController, workers: Workers) -> None:
        worker = await workers.connected()
        fifo = tmp_path / "go"
        os.mkfifo(fifo)
        script = f"echo before; read x < {fifo}; echo $x; echo last words >&2; exit 7"
        controller.send(run=[run_command("sh", "-c", script), run_command("sh", "-c", "exec sleep 1000", indexes=[1])])
        await controller.until(lambda: controller.output(JOB) == b"before\n")
        await controller.until(lambda: TaskState.RUNNING in controller.states.get("/user/job/1:0", []))
        pid = controller.observations["/user/job/1:0"].pid
        worker.kill()
        await ended(worker)
        await asyncio.to_thread(fifo.write_text, "after\n")
        # Its end comes while nobody looks.
        await asyncio.to_thread(eventually, lambda: gone(controller.observations[JOB].pid), "the task has ended")
        await workers.connected()
        (end,) = await controller.until_ended(JOB)
        assert (end.state, end.exit_code, end.error) == (TaskState.FAILED, 7, "exit code 7")
        assert controller.output(JOB) == b"before\nafter\n"
        assert controller.output(JOB, stderr=True) == b"last words\n"
        first, second = controller.hellos
        assert first.instance_id == second.instance_id
        assert {o.attempt_id: o.pid for o in second.inventory}["/user/job/1:0"] == pid
        assert not gone(pid)
        controller.send(stop=[pb.StopAttempt(attempt_id="/user/job/1:0", grace_ms=1000, reason="stop")], forget=[JOB])
        (stopped,) = await controller.until_ended("/user/job/1:0")
        assert (stopped.state, stopped.error) == (TaskState.KILLED, "stop")
        assert gone(pid)

    play_processes(scenario)


def test_a_killed_guardians_tasks_are_killed_and_its_worker_begins_anew(play_processes: Play) -> None:
    async def scenario(controller: FakeController, workers: Workers) -> None:
        worker = await workers.connected()
        pids = await started_daemon(controller)
        os.kill(workers.guardian_pid(), signal.SIGKILL)
        await controller.until(lambda: len(controller.hellos) == 2)
        first, second = controller.hellos
        assert list(second.inventory) == []
        assert first.instance_id != second.instance_id
        assert all(map(gone, pids))
        assert worker.poll() is None
        assert list((workers.work_dir / "logs").iterdir()) == []

    play_processes(scenario)


def test_a_second_worker_on_the_directory_leaves_at_once(play_processes: Play) -> None:
    async def scenario(controller: FakeController, workers: Workers) -> None:
        first = await workers.connected()
        second = workers.start()
        assert await ended(second) == 0
        assert second.stdout is not None
        assert f"worker already runs: process {first.pid} owns {workers.work_dir}" in second.stdout.read()
        assert first.poll() is None

    play_processes(scenario)


def test_a_work_directory_that_others_can_write_to_is_refused(play_processes: Play) -> None:
    async def scenario(controller: FakeController, workers: Workers) -> None:
        workers.work_dir.mkdir()
        workers.work_dir.chmod(0o777)
        worker = workers.start()
        assert await ended(worker) == 1
        assert worker.stdout is not None
        told = f"the work directory {workers.work_dir} has mode 777, so others can write to it: name a directory in it"
        assert told in worker.stdout.read()

    play_processes(scenario)


def test_a_worker_without_controller_and_tasks_leaves_after_its_time(play_processes: Play) -> None:
    async def scenario(controller: FakeController, workers: Workers) -> None:
        await controller.stop()
        worker = workers.start(orphan_timeout_s=0.1)
        assert await ended(worker) == 0

    play_processes(scenario)


def test_a_task_keeps_its_worker_while_the_controller_is_gone(play_processes: Play, tmp_path: Path) -> None:
    async def scenario(controller: FakeController, workers: Workers) -> None:
        alone_s = 0.1
        worker = workers.start(orphan_timeout_s=alone_s)
        await controller.until(lambda: controller.hellos)
        fifo = tmp_path / "go"
        os.mkfifo(fifo)
        controller.send(run=[run_command("sh", "-c", f"echo before; read x < {fifo}; echo $x")])
        await controller.until(lambda: controller.output(JOB) == b"before\n")
        await controller.stop()
        before = len(workers.looks())

        def looked_for() -> float:
            looks = workers.looks()[before:]
            return looks[-1] - looks[0] if looks else 0.0

        def has_looked_long_or_left() -> bool:  # without a task it would have left by then
            return looked_for() >= 3 * alone_s or worker.poll() is not None

        await asyncio.to_thread(eventually, has_looked_long_or_left, "it has looked for the controller for long")
        assert worker.poll() is None
        await controller.start()
        await controller.until(lambda: len(controller.hellos) == 2)
        await asyncio.to_thread(fifo.write_text, "after\n")
        await controller.until_ended(JOB)
        assert controller.output(JOB) == b"before\nafter\n"

    play_processes(scenario)


def test_goodbye_ends_the_process_and_its_tasks(play_processes: Play) -> None:
    async def scenario(controller: FakeController, workers: Workers) -> None:
        worker = await workers.connected()
        pids = await started_daemon(controller)
        controller.send_message(pb.ControllerMessage(goodbye=pb.Goodbye(reason="stop", exit=True)))
        assert await ended(worker) == 0
        assert all(map(gone, pids))

    play_processes(scenario)


def test_a_daemon_that_wiped_its_environment_dies_with_its_task(play_processes: Play, tmp_path: Path) -> None:
    async def scenario(controller: FakeController, workers: Workers) -> None:
        await workers.connected()
        ready = tmp_path / "ready"
        daemon = f"env -i setsid sh -c 'touch {ready}; exec sleep 1000' & echo $!; until [ -e {ready} ]; do :; done"
        controller.send(run=[run_command("sh", "-c", daemon)])
        await controller.until_ended(JOB)
        assert gone(int(controller.output(JOB)))

    play_processes(scenario)


def test_a_task_inherits_no_descriptor_and_starts_in_a_directory_of_its_own(play_processes: Play) -> None:
    async def scenario(controller: FakeController, workers: Workers) -> None:
        await workers.connected()
        controller.send(run=[run_command("sh", "-c", "pwd; ls /proc/$$/fd")])
        await controller.until_ended(JOB)
        directory, *descriptors = controller.output(JOB).decode().splitlines()
        assert Path(directory).is_relative_to(WorkPaths(workers.work_dir).slots)
        assert descriptors in (["0", "1", "2"], ["0", "1", "10", "2"])

    play_processes(scenario)


def test_many_attempts_at_once_all_end_once(play_processes: Play) -> None:
    async def scenario(controller: FakeController, workers: Workers) -> None:
        await workers.connected()
        controller.send(run=[run_command("true", indexes=range(300))])
        ids = [f"/user/job/{index}:0" for index in range(300)]
        ends = await controller.until_ended(*ids, timeout_s=60)
        assert {end.state for end in ends} == {TaskState.SUCCEEDED}
        assert all(controller.states[attempt_id].count(TaskState.SUCCEEDED) == 1 for attempt_id in ids)

    play_processes(scenario)
