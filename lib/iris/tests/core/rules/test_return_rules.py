"""Attempts that were given up and are heard of again: who goes on, the original or its successor."""

import pytest

from iris.domain.effects import Effect, ForgetAttempt, StopAttempt, WithdrawAttempt
from iris.domain.endpoints import RegisteredEndpoint
from iris.domain.events import (
    AttemptMissing,
    AttemptObserved,
    EndpointRegistered,
    Preempted,
    WorkerHeard,
    WorkerLate,
    WorkerLost,
)
from iris.domain.ids import AttemptId, JobId, TaskId, WorkerId
from iris.domain.states import JobState, TaskState
from support.iris.scheduling import InMemoryCluster, resources

W, V = WorkerId("w"), WorkerId("v")
S = TaskState


def seen(name: str, state: TaskState, worker_id: WorkerId = W) -> AttemptObserved:
    return AttemptObserved(AttemptId(name), worker_id, state)


def told(effects: list[Effect], kind: type[Effect]) -> list[str]:
    return [effect.attempt_id for effect in effects if isinstance(effect, kind)]  # type: ignore[union-attr]


def task(cluster: InMemoryCluster, index: int = 0) -> tuple[TaskState, int, str | None, int]:
    found = cluster.view.task(TaskId(f"/u/job/{index}"))
    return found.state, found.attempt, found.worker_id, found.preemptions


@pytest.fixture
def cut_off(cluster: InMemoryCluster) -> InMemoryCluster:
    """An attempt runs on w, which was given up; v has joined since, and nothing is scheduled yet."""
    cluster.launch()
    cluster.observe("/u/job/0:0", S.RUNNING, started_at_ms=7)
    cluster.connect("v", resources(4, 16, 100))
    cluster.do(WorkerLost(W, "not heard"))
    assert task(cluster) == (S.PENDING, 0, None, 1)
    cluster.effects.clear()
    return cluster


@pytest.mark.parametrize(
    ("state", "after"),
    [(S.RUNNING, S.RUNNING), (S.SUCCEEDED, S.SUCCEEDED), (S.FAILED, S.PENDING), (S.KILLED, S.PENDING)],
)
def test_where_no_successor_was_assigned_it_goes_on_or_has_ended(cut_off, state, after):
    cut_off.reconnect("w", "a", [seen("/u/job/0:0", state)])
    assert cut_off.task().state is after
    assert not cut_off.view.lost
    assert not told(cut_off.effects, StopAttempt)
    if state is S.RUNNING:
        assert task(cut_off) == (S.RUNNING, 0, W, 0), "its loss is charged no more"
        assert cut_off.task().causes == ()
        cut_off.observe("/u/job/0:0", S.SUCCEEDED)
        assert cut_off.job().state is JobState.SUCCEEDED


@pytest.mark.parametrize("successor", [S.ASSIGNED, S.BUILDING])
@pytest.mark.parametrize("state", [S.RUNNING, S.SUCCEEDED])
def test_a_successor_that_hands_itself_back_gives_way_and_its_number_stays_burnt(cut_off, successor, state):
    cut_off.schedule()
    if successor is S.BUILDING:
        cut_off.observe("/u/job/0:1", S.BUILDING)
    cut_off.reconnect("w", "a", [seen("/u/job/0:0", state)])
    assert told(cut_off.effects, WithdrawAttempt) == ["/u/job/0:1"]
    assert task(cut_off) == (successor, 1, V, 1), "it is v that knows whether that has begun"
    assert ("/u/job/0:0" in cut_off.view.bookings) == (state is S.RUNNING), "what runs holds its place"
    cut_off.observe("/u/job/0:1", S.PENDING)
    assert task(cut_off) == (state, 0, W, 0)
    if state is S.RUNNING:
        cut_off.do(WorkerLost(W, "again"))
        cut_off.schedule()
        assert task(cut_off) == (S.ASSIGNED, 2, V, 1)


def test_a_successor_that_has_begun_stays(cut_off):
    cut_off.schedule()
    cut_off.reconnect("w", "a", [seen("/u/job/0:0", S.RUNNING)])
    cut_off.effects.clear()
    cut_off.observe("/u/job/0:1", S.RUNNING)
    assert told(cut_off.effects, StopAttempt) == ["/u/job/0:0"]
    cut_off.observe("/u/job/0:0", S.KILLED, worker_id=W)
    assert task(cut_off) == (S.RUNNING, 1, V, 1)
    assert (dict(cut_off.view.lost), dict(cut_off.view.returned)) == ({}, {})


@pytest.mark.parametrize("ends", [S.SUCCEEDED, S.FAILED])
def test_an_original_that_ends_well_before_its_successor_counts(cut_off, ends):
    cut_off.schedule()
    cut_off.observe("/u/job/0:1", S.RUNNING)
    cut_off.reconnect("w", "a", [seen("/u/job/0:0", S.RUNNING)])
    assert told(cut_off.effects, StopAttempt) == ["/u/job/0:0"]
    cut_off.effects.clear()
    cut_off.observe("/u/job/0:0", ends, worker_id=W)
    assert told(cut_off.effects, ForgetAttempt) == ["/u/job/0:0"]
    if ends is S.SUCCEEDED:
        assert (cut_off.task().state, cut_off.task().attempt) == (S.SUCCEEDED, 0)
        assert told(cut_off.effects, StopAttempt) == ["/u/job/0:1"]
        cut_off.observe("/u/job/0:1", S.KILLED)
    else:
        assert task(cut_off) == (S.RUNNING, 1, V, 1)
    assert not cut_off.view.lost


def test_a_successor_that_is_stopped_is_waited_for(cut_off):
    cut_off.schedule()
    cut_off.observe("/u/job/0:1", S.RUNNING)
    cut_off.do(Preempted(AttemptId("/u/job/0:1"), "more urgent work"))
    cut_off.reconnect("w", "a", [seen("/u/job/0:0", S.RUNNING)])
    assert task(cut_off)[0] is S.PENDING
    cut_off.observe("/u/job/0:1", S.KILLED, worker_id=V)
    assert task(cut_off) == (S.RUNNING, 0, W, 1)


@pytest.mark.parametrize("way", ["lost", "missing", "restarted"])
def test_of_a_successor_that_nobody_can_ask_any_more_the_original_is_kept(cut_off, way):
    cut_off.schedule()
    cut_off.reconnect("w", "a", [seen("/u/job/0:0", S.RUNNING)])
    if way == "lost":
        cut_off.do(WorkerLate(V, 10_000))
        cut_off.do(WorkerLost(V, "not heard"))
    elif way == "missing":
        cut_off.reconnect("v", "a", [])
    else:
        cut_off.do(AttemptMissing(AttemptId("/u/job/0:1"), "its worker restarted"))
    assert task(cut_off)[:3] == (S.RUNNING, 0, W)
    if way == "lost":
        cut_off.effects.clear()
        cut_off.reconnect("v", "a", [seen("/u/job/0:1", S.RUNNING, V)])
        assert told(cut_off.effects, StopAttempt) == ["/u/job/0:1"], "it was begun, and is superseded"


def test_the_question_is_repeated_and_the_answer_outlives_a_restart(cut_off, restarted):
    cut_off.schedule()
    cut_off.reconnect("w", "a", [seen("/u/job/0:0", S.RUNNING)])
    cut_off.view = restarted(cut_off.view)
    cut_off.effects.clear()
    cut_off.reconnect("v", "a", [seen("/u/job/0:1", S.BUILDING, V)])
    result = cut_off.reconnect("w", "a", [seen("/u/job/0:0", S.RUNNING)])
    assert result.to_stop == []
    assert told(cut_off.effects, WithdrawAttempt) == ["/u/job/0:1"]
    cut_off.do(seen("/u/job/0:1", S.BUILDING, V))
    assert told(cut_off.effects, WithdrawAttempt) == ["/u/job/0:1"] * 2
    cut_off.observe("/u/job/0:1", S.PENDING)
    assert task(cut_off) == (S.RUNNING, 0, W, 0)


def test_it_answers_again_where_it_did(cut_off, cluster):
    cluster.reconnect("w", "a", [seen("/u/job/0:0", S.RUNNING)])
    cluster.do(EndpointRegistered(RegisteredEndpoint("/u/job/name", AttemptId("/u/job/0:0"), "h:1")))
    cluster.do(WorkerLost(W, "not heard"))
    assert not cluster.view.endpoints.named("/u/job/name")
    cluster.reconnect("w", "a", [seen("/u/job/0:0", S.RUNNING)])
    assert [endpoint.address for endpoint in cluster.view.endpoints.named("/u/job/name")] == ["h:1"]


def test_a_job_that_is_stopped_meanwhile_stops_it(cut_off):
    cut_off.schedule()
    cut_off.reconnect("w", "a", [seen("/u/job/0:0", S.RUNNING)])
    cut_off.effects.clear()
    cut_off.stop("/u/job")
    assert sorted(told(cut_off.effects, StopAttempt)) == ["/u/job/0:0", "/u/job/0:1"]
    cut_off.observe("/u/job/0:0", S.KILLED, worker_id=W)
    cut_off.observe("/u/job/0:1", S.KILLED)
    assert cut_off.view.is_settled(JobId("/u/job"))


def test_what_was_given_up_but_never_told_to_stop_is_told_once_its_job_is_stopped(cluster):
    cluster.launch()
    cluster.connect("v", resources(4, 16, 100))
    cluster.do(WorkerLate(W, 10_000))
    cluster.schedule()
    cluster.stop("/u/job")
    cluster.do(WorkerHeard(W))
    cluster.effects.clear()
    cluster.do(seen("/u/job/0:0", S.RUNNING))
    assert told(cluster.effects, StopAttempt) == ["/u/job/0:0"]


def test_what_was_preempted_before_it_was_lost_has_no_claim(cluster):
    cluster.launch()
    cluster.observe("/u/job/0:0", S.RUNNING)
    cluster.do(Preempted(AttemptId("/u/job/0:0"), "more urgent work"))
    cluster.do(WorkerLost(W, "not heard"))
    cluster.effects.clear()
    cluster.reconnect("w", "a", [seen("/u/job/0:0", S.RUNNING)])
    assert told(cluster.effects, StopAttempt) == ["/u/job/0:0"]
    assert cluster.task().state is S.PENDING


@pytest.fixture
def gang(cluster: InMemoryCluster) -> InMemoryCluster:
    """A gang runs on c0 and c1, which were both given up; c2 and c3 are there."""
    for name in ("c0", "c1"):
        cluster.connect(name, resources(1, 16), pool="c")
    cluster.launch(replicas=2, coscheduling_group_by="pool")
    for index in range(2):
        cluster.observe(f"/u/job/{index}:0", S.RUNNING)
    for name in ("c2", "c3"):
        cluster.connect(name, resources(1, 16), pool="c")
    return cluster


HOSTS = {0: WorkerId("c0"), 1: WorkerId("c1")}


@pytest.mark.parametrize("successors", [None, S.ASSIGNED, S.BUILDING])
def test_a_gang_has_its_tasks_back_as_a_whole(gang, successors):
    for host in HOSTS.values():
        gang.do(WorkerLate(host, 10_000))
    gang.do(WorkerLost(HOSTS[0], "not heard"))
    if successors:
        gang.schedule()
    gang.do(WorkerLost(HOSTS[1], "not heard"))
    for index in range(2) if successors is S.BUILDING else ():
        gang.observe(f"/u/job/{index}:1", S.BUILDING)
    gang.effects.clear()
    gang.reconnect(HOSTS[0], "a", [seen("/u/job/0:0", S.RUNNING, HOSTS[0])])
    assert not gang.effects, "one alone is no gang"
    gang.reconnect(HOSTS[1], "a", [seen("/u/job/1:0", S.RUNNING, HOSTS[1])])
    if successors:
        assert sorted(told(gang.effects, WithdrawAttempt)) == ["/u/job/0:1", "/u/job/1:1"]
        gang.observe("/u/job/0:1", S.PENDING)
        assert task(gang)[0] is S.PENDING, "the other successor is on its way out"
        gang.observe("/u/job/1:1", S.PENDING)
    assert [task(gang, index)[:3] for index in range(2)] == [(S.RUNNING, 0, HOSTS[0]), (S.RUNNING, 0, HOSTS[1])]
    assert [gang.task(f"/u/job/{index}").next_attempt for index in range(2)] == ([2, 2] if successors else [1, 1])


@pytest.mark.parametrize("kept", [0, 1])
def test_a_gang_whose_round_is_not_whole_has_no_claim(gang, kept):
    """One host was silent: the other member heard that it is to stop, or a successor has begun."""
    gang.do(WorkerLate(HOSTS[0], 10_000))
    gang.do(WorkerLost(HOSTS[0], "not heard"))
    assert told(gang.effects, StopAttempt) == ["/u/job/1:0"]
    if kept:
        gang.observe("/u/job/1:0", S.KILLED)
        gang.schedule()
        gang.observe("/u/job/1:1", S.RUNNING)
    gang.effects.clear()
    gang.reconnect(HOSTS[0], "a", [seen("/u/job/0:0", S.RUNNING, HOSTS[0])])
    assert told(gang.effects, StopAttempt) == ["/u/job/0:0"]


@pytest.mark.parametrize("late", [True, False])
def test_a_gang_on_one_host_has_its_tasks_back(cluster, late):
    cluster.connect("c0", resources(2, 16), pool="c")
    cluster.launch(replicas=2, coscheduling_group_by="pool")
    for index in range(2):
        cluster.observe(f"/u/job/{index}:0", S.RUNNING)
    if late:
        cluster.do(WorkerLate(HOSTS[0], 10_000))
    cluster.do(WorkerLost(HOSTS[0], "not heard"))
    cluster.reconnect(HOSTS[0], "a", [seen(f"/u/job/{index}:0", S.RUNNING, HOSTS[0]) for index in range(2)])
    assert [task(cluster, index)[:3] for index in range(2)] == [(S.RUNNING, 0, HOSTS[0])] * 2
