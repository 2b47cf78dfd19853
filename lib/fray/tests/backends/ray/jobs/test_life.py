"""Jobs on Ray carry out what their life says, and report what they see: without Ray, where tasks end when told to."""

import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from fray.backends.common.job_life import SUCCESS, AttemptEnd, AttemptStatus
from fray.errors import JobFailed
from fray.testing import LONG, eventually
from fray.types import Entrypoint, JobRequest, JobStatus

pytestmark = pytest.mark.ray

FAILURE = AttemptEnd(AttemptStatus.FAILED, "exit code 3")
STOPPED = AttemptEnd(AttemptStatus.STOPPED, "it was cancelled")


class Owner:
    """Stands for the client: tasks are (attempt, replica), and end when they are told to."""

    parent = ""
    closed = False

    def __init__(self) -> None:
        self.settles: dict[tuple[int, int], Any] = {}
        self.stopped: list[tuple[int, int]] = []
        self.gone: list[str] = []
        self.forgotten = 0
        self.refused: Exception | None = None
        self.completions = SimpleNamespace(add=self.settles.__setitem__, look=lambda refs: None)
        self.canceller = SimpleNamespace(stop=lambda refs, gently, done: self.stopped.extend(refs))
        self.sessions = SimpleNamespace(ask=lambda question, timeout: self.gone)

    def launch(self, job: Any, attempt: int, replica: int, options: Any, env: Mapping[str, str] | None = None) -> Any:
        if self.refused is not None:
            raise self.refused
        return attempt, replica

    def forget(self, job: Any) -> None:
        self.forgotten += 1

    def known_session(self) -> None:
        return None

    def ask_session_if_up(self, question: Any, timeout: float) -> None:
        return None

    def block_on(self, handles: Any, timeout: float | None) -> None:
        threading.Event().wait(0.001)

    def end(self, attempt: int, replica: int, end: AttemptEnd) -> None:
        """End a task, when it has been started."""
        eventually(lambda: (attempt, replica) in self.settles, f"task {(attempt, replica)} is started")
        self.settles[attempt, replica]((attempt, replica), end)


class Placer:
    """Has room for all replicas, from `room` on."""

    def __init__(self, replicas: int) -> None:
        self.replicas = replicas
        self.room = threading.Event()
        self.room.set()
        self.given_back = 0

    def acquire(self, halt: threading.Event) -> Any:
        from fray.backends.ray.jobs.slices import Placement, ReplicaPlacement

        while not self.room.wait(0.001):
            if halt.is_set():
                return None
        placer = self

        class Room(Placement):
            def node_ids(self) -> list[str]:
                return [f"node{number}" for number in range(placer.replicas)]

            def release(self) -> None:
                placer.given_back += 1

        group = SimpleNamespace(id=None, bundle_count=self.replicas, is_empty=False)
        return Room([ReplicaPlacement(group, number, {}) for number in range(self.replicas)], [])


def gang(owner: Owner, placer: Placer, **limits: int) -> Any:
    from fray.backends.ray.jobs.gang import GangJob
    from fray.backends.ray.jobs.job import Plan

    request = JobRequest("gang", Entrypoint.from_binary("true"), replicas=placer.replicas, **limits)
    stand_ins: Any = owner, placer
    job = GangJob(stand_ins[0], "ray-1-gang", request, Plan(None, {}, is_program=True), stand_ins[1])  # type: ignore[arg-type]
    job.start()
    return job


def test_a_gang_that_ends_well_gives_its_room_back() -> None:
    owner, placer = Owner(), Placer(2)
    job = gang(owner, placer)
    for replica in (1, 0):
        owner.end(1, replica, SUCCESS)
    assert job.wait(LONG) is JobStatus.SUCCEEDED
    assert (owner.forgotten, placer.given_back, owner.stopped) == (1, 1, [])


@pytest.mark.process
def test_a_failure_while_a_node_is_gone_is_a_preemption_and_all_start_over() -> None:
    owner, placer = Owner(), Placer(2)
    job = gang(owner, placer, max_retries_failure=0, max_retries_preemption=1)
    eventually(lambda: job.status() is JobStatus.RUNNING, "it runs")
    owner.gone = ["node1"]
    owner.end(1, 0, FAILURE)
    eventually(lambda: owner.stopped == [(1, 1)], "its peer is stopped")
    owner.gone = ["node1"]
    owner.end(1, 1, STOPPED)
    eventually(lambda: placer.given_back >= 1, "its room is given back before there is another")
    owner.gone = []
    for replica in range(2):
        owner.end(2, replica, SUCCESS)
    assert job.wait(LONG) is JobStatus.SUCCEEDED
    first, second = job.attempts
    assert (first.status, second.status) == (AttemptStatus.PREEMPTED, AttemptStatus.SUCCEEDED)
    assert "1 of its 2 nodes are gone (node1); seen as: exit code 3" in first.reason


def test_a_users_failure_is_told_as_it_is() -> None:
    owner, placer = Owner(), Placer(2)
    job = gang(owner, placer)
    owner.end(1, 1, FAILURE)
    owner.end(1, 0, STOPPED)
    with pytest.raises(JobFailed, match="job 'gang' failed: exit code 3"):
        job.wait(LONG)
    assert [attempt.status for attempt in job.attempts] == [AttemptStatus.FAILED]


def test_preemption_is_reported_when_its_retries_are_used_up() -> None:
    owner, placer = Owner(), Placer(1)
    job = gang(owner, placer, max_retries_preemption=0, max_retries_failure=5)
    owner.gone = ["node0"]
    owner.end(1, 0, FAILURE)
    with pytest.raises(JobFailed, match=r"preempted 1 times \(max_retries_preemption=0\)"):
        job.wait(LONG)


def test_a_gang_that_is_stopped_before_there_is_room_has_run_nothing() -> None:
    owner, placer = Owner(), Placer(2)
    placer.room.clear()
    job = gang(owner, placer)
    assert job.status() is JobStatus.PENDING
    job.terminate()
    assert job.wait(LONG, raise_on_failure=False) is JobStatus.STOPPED
    assert owner.settles == {}


def test_a_gang_whose_tasks_cannot_be_started_fails_and_gives_its_room_back() -> None:
    owner, placer = Owner(), Placer(2)
    owner.refused = ConnectionError("Ray is not there")
    job = gang(owner, placer)
    with pytest.raises(JobFailed, match="its gang is lost: ConnectionError: Ray is not there"):
        job.wait(LONG)
    assert placer.given_back == 1


def test_a_late_end_of_an_earlier_attempt_is_no_end_of_this_one() -> None:
    from fray.backends.ray.jobs.job import Plan, RayJob

    owner = Owner()
    request = JobRequest("alone", Entrypoint.from_binary("true"), max_retries_failure=1)
    client: Any = owner
    job = RayJob(client, "ray-1-alone", request, Plan(None, {}, is_program=True))  # type: ignore[arg-type]
    job.start()
    owner.end(1, 0, FAILURE)
    owner.end(1, 0, FAILURE)
    assert [end.status for end in job.attempts] == [AttemptStatus.FAILED]
    owner.end(2, 0, SUCCESS)
    assert job.wait(LONG) is JobStatus.SUCCEEDED
