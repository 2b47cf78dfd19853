"""Waiting for jobs: how long each call waits, which answers are put together, and what is said when time is up."""

from collections.abc import Callable
from typing import Any

import pytest

from iris.client.connection.waiting import wait_jobs
from iris.cluster.types import JobState
from iris.rpc import iris_pb2 as pb
from rigging.errors import DeadlineExceeded, InvalidRequest

RUNNING, SUCCEEDED, FAILED = pb.JOB_STATE_RUNNING, pb.JOB_STATE_SUCCEEDED, pb.JOB_STATE_FAILED


class Cluster:
    """Tells of ends through a session, and how jobs are when it is asked; time passes only while it is waited for."""

    timeout = 12.0
    metadata = ()

    def __init__(self, *told: Any) -> None:
        self.told = list(told)
        self.states: dict[str, int] = {}
        self.done = False
        self.now = 100.0
        self.waits: list[float] = []
        self.polled: list[tuple[list[str], bool, int, float]] = []
        self.jobs = self

    def wait(self, jobs: Any, *, any_of_them: bool, seconds: float) -> Any:
        self.waits.append(seconds)
        answer = self.told.pop(0) if self.told else None
        self.now += seconds if answer is not None and not answer[1] else 0.0
        return answer

    def run(self, call: Callable[["Cluster"], Any]) -> Any:
        return call(self)

    def WaitJobs(self, request: pb.WaitJobsRequest, *, timeout: float, metadata: Any) -> pb.WaitJobsResponse:
        self.polled.append((list(request.job_ids), request.any, request.timeout_ms, timeout))
        if not self.done:
            self.now += request.timeout_ms / 1000
        found = [pb.JobStatus(job_id=name, state=self.states.get(name, RUNNING)) for name in request.job_ids]
        return pb.WaitJobsResponse(jobs=found, done=self.done)


@pytest.fixture
def wait() -> Callable[..., list[tuple[str, JobState]]]:
    def wait(
        cluster: Cluster, *names: str, any_of_them: bool = False, timeout: float | None = None
    ) -> list[tuple[str, JobState]]:
        wanted = [(name, "key") for name in names]
        found = wait_jobs(
            cluster,  # type: ignore[arg-type]
            cluster,  # type: ignore[arg-type]
            wanted,
            any_of_them=any_of_them,
            timeout=timeout,
            clock=lambda: cluster.now,
        )
        return [(status.job_id, status.state) for status in found]

    return wait


Wait = Callable[..., list[tuple[str, JobState]]]


def ended(name: str, state: int = SUCCEEDED) -> dict[str, pb.JobStatus]:
    return {name: pb.JobStatus(job_id=name, state=state)}


def test_ends_that_a_session_tells_are_all_that_is_needed(wait: Wait) -> None:
    cluster = Cluster(({**ended("/a/2", FAILED), **ended("/a/1")}, True))
    assert wait(cluster, "/a/1", "/a/2", "/a/1") == [
        ("/a/1", JobState.SUCCEEDED), ("/a/2", JobState.FAILED), ("/a/1", JobState.SUCCEEDED),
    ]  # fmt: skip
    assert (cluster.waits, cluster.polled) == ([30.0], [])


def test_how_those_are_that_have_not_ended_is_asked_without_waiting(wait: Wait) -> None:
    cluster = Cluster((ended("/a/2", FAILED), True))
    cluster.states["/a/2"] = RUNNING  # told of an end, it has ended, whatever has the name now
    assert wait(cluster, "/a/1", "/a/2", any_of_them=True) == [("/a/1", JobState.RUNNING), ("/a/2", JobState.FAILED)]
    assert cluster.polled == [(["/a/1", "/a/2"], True, 1, 12.0)]


def test_an_end_that_the_session_had_no_time_to_tell_ends_the_wait(wait: Wait) -> None:
    cluster = Cluster(({}, False))
    cluster.states["/a/1"], cluster.done = SUCCEEDED, True
    assert wait(cluster, "/a/1", timeout=0.5) == [("/a/1", JobState.SUCCEEDED)]
    assert cluster.waits == [0.5]


@pytest.mark.parametrize("any_of_them", [True, False])
def test_of_no_jobs_there_is_nothing_to_wait_for(wait: Wait, any_of_them: bool) -> None:
    cluster = Cluster()
    assert wait(cluster, any_of_them=any_of_them) == []
    assert (cluster.waits, cluster.polled) == ([], [])


@pytest.mark.parametrize("timeout", [float("nan"), "5"])
def test_a_limit_that_is_no_number_is_refused(wait: Wait, timeout: float) -> None:
    cluster = Cluster(({}, False))  # a wait that goes on would fail for want of a further answer
    with pytest.raises(InvalidRequest, match="timeout must be a number of seconds, or None for no limit, not"):
        wait(cluster, "/a/1", timeout=timeout)
    assert (cluster.waits, cluster.polled) == ([], [])


def test_without_a_limit_it_is_waited_for_again_and_again(wait: Wait) -> None:
    cluster = Cluster(({}, False), ({}, False), (ended("/a/1"), True))
    assert wait(cluster, "/a/1") == [("/a/1", JobState.SUCCEEDED)]
    assert cluster.waits == [30.0] * 3
    assert [any_of_them for _, any_of_them, *_ in cluster.polled] == [False] * 2


def test_no_call_waits_longer_than_is_left(wait: Wait) -> None:
    cluster = Cluster(({}, False), ({}, False))
    with pytest.raises(DeadlineExceeded, match=r"^not ended within 40 s: /a/1 is running$"):
        wait(cluster, "/a/1", timeout=40)
    assert cluster.waits[0] == 30.0
    assert cluster.waits[1] == pytest.approx(10.0, abs=0.01)


def test_without_a_session_the_call_itself_waits(wait: Wait) -> None:
    cluster = Cluster()
    with pytest.raises(DeadlineExceeded):
        wait(cluster, "/a/1", timeout=2.5)
    assert cluster.polled == [(["/a/1"], False, 2500, 14.5)]
    cluster.done, cluster.states["/a/1"] = True, SUCCEEDED
    assert wait(cluster, "/a/1", timeout=-5) == [("/a/1", JobState.SUCCEEDED)]
    assert cluster.polled[-1] == (["/a/1"], False, 1, 12.0)
    assert cluster.waits == [2.5, 0.0]


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (3, "/a/0 is running, /a/1 is running, /a/2 is running$"),
        (4, "/a/0 is running, /a/1 is running, /a/2 is running and 1 more$"),
        (6, "/a/2 is running and 3 more$"),
    ],
)
def test_those_that_live_are_named_as_far_as_there_is_room(wait: Wait, count: int, words: str) -> None:
    cluster = Cluster()
    cluster.states["/a/ended"] = FAILED
    with pytest.raises(DeadlineExceeded, match=words) as late:
        wait(cluster, "/a/ended", *(f"/a/{number}" for number in range(count)), timeout=1)
    assert "/a/ended" not in str(late.value)
