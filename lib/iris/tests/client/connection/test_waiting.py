from typing import Any

import pytest

from iris.client.connection.waiting import wait_jobs
from iris.cluster.types import JobState
from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import DeadlineExceeded, InvalidRequest
from support.iris.played_connection import PlayedConnection

RUNNING, SUCCEEDED, FAILED = pb.JOB_STATE_RUNNING, pb.JOB_STATE_SUCCEEDED, pb.JOB_STATE_FAILED


class Cluster(PlayedConnection):
    """Tells of ends through a session, and how jobs are when it is asked; time passes only while it is waited for."""

    def __init__(self, *told: Any) -> None:
        super().__init__(WaitJobs=self.poll)
        self.told = list(told)
        self.states: dict[str, int] = {}
        self.done = False
        self.now = 100.0
        self.waits: list[float] = []

    def wait(self, jobs: Any, *, any_of_them: bool, seconds: float) -> Any:
        self.waits.append(seconds)
        answer = self.told.pop(0) if self.told else None
        self.now += seconds if answer is not None and not answer[1] else 0.0
        return answer

    def poll(self, request: pb.WaitJobsRequest) -> pb.WaitJobsResponse:
        if not self.done:
            self.now += request.timeout_ms / 1000
        found = [pb.JobStatus(job_id=name, state=self.states.get(name, RUNNING)) for name in request.job_ids]
        return pb.WaitJobsResponse(jobs=found, done=self.done)


def wait(cluster: Any, *names: str, any_of_them: bool = False, timeout: float | None = None) -> Any:
    """The names and states of jobs when a wait for them ends."""
    wanted = [(name, "key") for name in names]
    found = wait_jobs(
        cluster, cluster, wanted, any_of_them=any_of_them, timeout=timeout, clock=lambda: cluster.now
    )  # fmt: skip
    return [(status.job_id, status.state) for status in found]


def ended(name: str, state: int = SUCCEEDED) -> dict[str, pb.JobStatus]:
    return {name: pb.JobStatus(job_id=name, state=state)}


def test_ends_that_a_session_tells_are_all_that_is_needed() -> None:
    cluster = Cluster(({**ended("/a/2", FAILED), **ended("/a/1")}, True))
    assert wait(cluster, "/a/1", "/a/2", "/a/1") == [
        ("/a/1", JobState.SUCCEEDED), ("/a/2", JobState.FAILED), ("/a/1", JobState.SUCCEEDED),
    ]  # fmt: skip
    assert (cluster.waits, cluster.requests) == ([30.0], [])


def test_how_those_are_that_have_not_ended_is_asked_without_waiting() -> None:
    cluster = Cluster((ended("/a/2", FAILED), True))
    cluster.states["/a/2"] = RUNNING  # told of an end, it has ended, whatever has the name now
    assert wait(cluster, "/a/1", "/a/2", any_of_them=True) == [("/a/1", JobState.RUNNING), ("/a/2", JobState.FAILED)]
    assert cluster.requests == [pb.WaitJobsRequest(job_ids=["/a/1", "/a/2"], any=True, timeout_ms=1)]
    assert cluster.options == [(12.0, True)]


def test_an_end_that_the_session_had_no_time_to_tell_ends_the_wait() -> None:
    cluster = Cluster(({}, False))
    cluster.states["/a/1"], cluster.done = SUCCEEDED, True
    assert wait(cluster, "/a/1", timeout=0.5) == [("/a/1", JobState.SUCCEEDED)]
    assert cluster.waits == [0.5]


@pytest.mark.parametrize("any_of_them", [True, False])
def test_of_no_jobs_there_is_nothing_to_wait_for(any_of_them: bool) -> None:
    cluster = Cluster()
    assert wait(cluster, any_of_them=any_of_them) == []
    assert (cluster.waits, cluster.requests) == ([], [])


@pytest.mark.parametrize("timeout", [float("nan"), "5"])
def test_a_limit_that_is_no_number_is_refused(timeout: float) -> None:
    cluster = Cluster(({}, False))  # a wait that goes on would fail for want of a further answer
    with pytest.raises(InvalidRequest, match="timeout must be a number of seconds, or None for no limit, not"):
        wait(cluster, "/a/1", timeout=timeout)
    assert (cluster.waits, cluster.requests) == ([], [])


def test_without_a_limit_it_is_waited_for_again_and_again() -> None:
    cluster = Cluster(({}, False), ({}, False), (ended("/a/1"), True))
    assert wait(cluster, "/a/1") == [("/a/1", JobState.SUCCEEDED)]
    assert cluster.waits == [30.0] * 3
    assert [request.any for request in cluster.requests] == [False] * 2


def test_no_call_waits_longer_than_is_left() -> None:
    cluster = Cluster(({}, False), ({}, False))
    with pytest.raises(DeadlineExceeded, match=r"^not ended within 40 s: /a/1 is running$"):
        wait(cluster, "/a/1", timeout=40)
    assert cluster.waits[0] == 30.0
    assert cluster.waits[1] == pytest.approx(10.0, abs=0.01)


def test_without_a_session_the_call_itself_waits() -> None:
    cluster = Cluster()
    with pytest.raises(DeadlineExceeded):
        wait(cluster, "/a/1", timeout=2.5)
    assert cluster.requests == [pb.WaitJobsRequest(job_ids=["/a/1"], timeout_ms=2500)]
    cluster.done, cluster.states["/a/1"] = True, SUCCEEDED
    assert wait(cluster, "/a/1", timeout=-5) == [("/a/1", JobState.SUCCEEDED)]
    assert cluster.requests[-1] == pb.WaitJobsRequest(job_ids=["/a/1"], timeout_ms=1)
    assert cluster.options == [(14.5, True), (12.0, True)]
    assert cluster.waits == [2.5, 0.0]


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (3, "/a/0 is running, /a/1 is running, /a/2 is running$"),
        (4, "/a/0 is running, /a/1 is running, /a/2 is running and 1 more$"),
        (6, "/a/2 is running and 3 more$"),
    ],
)
def test_those_that_live_are_named_as_far_as_there_is_room(count: int, words: str) -> None:
    cluster = Cluster()
    cluster.states["/a/ended"] = FAILED
    with pytest.raises(DeadlineExceeded, match=words) as late:
        wait(cluster, "/a/ended", *(f"/a/{number}" for number in range(count)), timeout=1)
    assert "/a/ended" not in str(late.value)


def test_of_a_job_that_is_over_the_attempt_that_may_live_is_waited_for_and_told() -> None:
    cluster = Cluster(({}, False), ({}, False))
    cluster.states = {"/a/1": SUCCEEDED}
    with pytest.raises(
        DeadlineExceeded, match=r"/a/1 is succeeded, but an attempt may still run on an unreachable host"
    ):
        wait(cluster, "/a/1", timeout=40)
