"""kill -9 of the controller at random points under load: what was acknowledged is there, again and again.

Clients submit and a worker reports results all the time, while the controller is killed and started again; in the
second test its disk is lost each time, too, and it comes back from the remote state.
"""

import random
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from fray.testing.waiting import eventually
from iris.rpc import iris_pb2 as pb
from iris.rpc.auth import PrincipalKind, load_or_create_secret, make_token
from iris.rpc.protocol import call_metadata
from support.iris.controller import ControllerStubs
from support.iris.controller_process import ControllerProcess
from support.iris.users import job_spec
from support.iris.worker import GIB, ScriptedWorker, Start

pytestmark = pytest.mark.process

SUBMITTERS = 3
ROOM = pb.Resources(cpu_millis=10_000_000, memory_bytes=10_000 * GIB, disk_bytes=GIB)


class Load:
    """Submits jobs and runs them, and remembers what it was promised."""

    def __init__(self, controller: ControllerProcess, secret: bytes) -> None:
        self.address = controller.address
        self._secret = secret
        self.acknowledged: set[str] = set()
        self.results: set[str] = set()
        self._ran: dict[str, pb.Observation] = {}
        self._stop = threading.Event()
        self._resting = threading.Event()
        self._threads = [threading.Thread(target=self._submit, args=(number,)) for number in range(SUBMITTERS)]
        self._threads.append(threading.Thread(target=self._work))
        for thread in self._threads:
            thread.start()

    def stubs(self) -> ControllerStubs:
        return ControllerStubs(self.address, call_metadata(make_token(self._secret, PrincipalKind.USER, "ann")))

    def wait_for_more(self) -> None:
        """Return once another submit was acknowledged: every life has something to lose."""
        before = len(self.acknowledged)
        eventually(lambda: len(self.acknowledged) > before, "another submit is acknowledged")

    def stop_submitting(self) -> None:
        self._resting.set()
        for thread in self._threads[:SUBMITTERS]:
            thread.join(30)

    def stop(self) -> None:
        self._stop.set()
        self.stop_submitting()
        self._threads[-1].join(30)

    def _submit(self, number: int) -> None:
        stubs, count = self.stubs(), 0
        while not self._resting.is_set():
            name = f"/ann/{number}-{count}"
            replicas, tries = 1 + count % 3, 1000
            spec = job_spec(name, cpu_millis=1, memory_bytes=1, replicas=replicas, max_retries_preemption=tries)
            request = pb.SubmitJobRequest(spec=spec, idempotency_key=name)
            try:
                stubs.jobs.SubmitJob(request, timeout=2, wait_for_ready=True)
            except grpc.RpcError:
                # The same job under the same key, until somebody says yes; gRPC's back-off would sit out whole lives.
                stubs.close()
                stubs = self.stubs()
                continue
            self.acknowledged.add(name)
            count += 1
        stubs.close()

    def _work(self) -> None:
        token = make_token(self._secret, PrincipalKind.WORKER, "w1")
        while not self._stop.is_set():
            inventory = list(self._ran.values())
            worker = ScriptedWorker(self.address, token, capacity=ROOM, inventory=inventory, script=self._run)
            while not worker.ended and not self._stop.wait(0.01):
                self._note(worker)
            self._note(worker)
            worker.disconnect()

    def _run(self, starts: "list[Start]") -> pb.WorkerMessage:
        ended = [pb.Observation(attempt_id=start.attempt_id, state=pb.TASK_STATE_SUCCEEDED) for start in starts]
        self._ran.update((observation.attempt_id, observation) for observation in ended)
        return pb.WorkerMessage(observations=ended)

    def _note(self, worker: ScriptedWorker) -> None:
        # A worker forgets an end once the controller says that it is kept.
        forgotten, worker.forgotten = worker.forgotten, []
        for name in forgotten:
            if self._ran.pop(name, None) is not None:
                self.results.add(name)


@dataclass(frozen=True)
class Kept:
    """What clients and a worker were promised, and what the last controller has of it."""

    acknowledged: set[str]
    results: set[str]
    jobs: dict[str, "pb.JobState.ValueType"]
    tasks: dict[str, pb.TaskStatus]

    def broken_promises(self) -> list[str]:
        """Jobs that were acknowledged and did not succeed, results that were received and are not there."""
        broken = [f"job {name}" for name in self.acknowledged if self.jobs.get(name) != pb.JOB_STATE_SUCCEEDED]
        for attempt in self.results:
            task_id, _, number = attempt.rpartition(":")
            task = self.tasks.get(task_id)
            if task is None or task.state != pb.TASK_STATE_SUCCEEDED or task.attempt < int(number):
                broken.append(f"result of {attempt}")
        return sorted(broken)


def kill_under_load(kills: int, tmp_path: Path, remote: str = "") -> Kept:
    chance = random.Random()
    seed = random.randrange(2**32)
    chance.seed(seed)
    print(f"seed {seed}")  # shown when the test fails
    state_dir = tmp_path / "state"
    controller = ControllerProcess(state_dir, remote_state_dir=remote)
    load = Load(controller, load_or_create_secret(state_dir / "secret"))
    try:
        for _ in range(kills):
            load.wait_for_more()
            time.sleep(chance.uniform(0, 0.3))  # the moment of the kill is what is varied here
            controller.kill()
            if remote:
                shutil.rmtree(state_dir)
            controller = ControllerProcess(state_dir, load.address.port, remote)
        load.stop_submitting()
        results = set(load.results)  # what comes in from now on is not asked about
        stubs = load.stubs()
        names = sorted(load.acknowledged)
        reply = stubs.jobs.WaitJobs(pb.WaitJobsRequest(job_ids=names, timeout_ms=60_000), wait_for_ready=True)
        tasks = {
            task.task_id: task
            for name in {attempt.rpartition("/")[0] for attempt in results}
            for task in stubs.jobs.ListTasks(pb.ListTasksRequest(job_id=name)).tasks
        }
        stubs.close()
        return Kept(set(names), results, {status.job_id: status.state for status in reply.jobs}, tasks)
    finally:
        load.stop()
        controller.kill()


MANY = pytest.param(100, marks=[pytest.mark.soak, pytest.mark.timeout(900)])


@pytest.mark.parametrize("kills", [3, MANY])
@pytest.mark.parametrize("loses_its_disk", [False, True])
def test_a_killed_controller_keeps_every_promise(kills: int, loses_its_disk: bool, tmp_path: Path) -> None:
    kept = kill_under_load(kills, tmp_path, str(tmp_path / "remote") if loses_its_disk else "")
    assert len(kept.acknowledged) >= kills
    assert kept.results
    assert kept.broken_promises() == []
