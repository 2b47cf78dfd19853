"""Attempts that were prefilled: they hold nothing until they begin, and never cost a retry if they did not."""

import pytest

from iris.domain.effects import ForgetAttempt, StartAttempt, StopAttempt
from iris.domain.events import (
    Assigned,
    AttemptMissing,
    AttemptObserved,
    Begun,
    LendCpu,
    WorkerCordoned,
    WorkerLate,
    WorkerLost,
)
from iris.domain.ids import AttemptId, TaskId, WorkerId
from iris.domain.resources import NOTHING
from iris.domain.states import TaskState
from rigging.errors import Conflict
from support.iris.scheduling import InMemoryCluster, resources

W = WorkerId("q")
FIRST, PREFILLED = AttemptId("/u/job/0:0"), AttemptId("/u/job/1:0")


@pytest.fixture
def cluster() -> InMemoryCluster:
    """A worker for one task; one runs there, another is prefilled, the third waits."""
    cluster = InMemoryCluster()
    cluster.connect("q", resources(1, 4))
    cluster.launch(replicas=3, max_retries_preemption=0)
    cluster.observe(FIRST, TaskState.RUNNING)
    cluster.do(Assigned(TaskId("/u/job/1"), W, prefilled=True))
    return cluster


def task_of(cluster: InMemoryCluster, name: AttemptId = PREFILLED):
    return cluster.task(name.rpartition(":")[0])


def test_it_is_assigned_and_holds_nothing(cluster: InMemoryCluster) -> None:
    assert cluster.effects[-1] == StartAttempt(PREFILLED, W, prefilled=True)
    assert task_of(cluster).state is TaskState.ASSIGNED
    assert cluster.view.committed(W) == resources(1, 1)
    assert cluster.view.usage.held("u") == 1


def test_it_takes_the_place_of_the_one_that_ended(cluster: InMemoryCluster) -> None:
    """Told together, whichever comes first: no moment in which the place looks free to the scheduler."""
    cluster.observe(PREFILLED, TaskState.BUILDING)
    cluster.observe(FIRST, TaskState.SUCCEEDED)
    assert cluster.schedule().assignments == []
    assert cluster.view.committed(W) == resources(1, 1)
    cluster.observe(PREFILLED, TaskState.SUCCEEDED, started_at_ms=5, at_ms=9)
    assert (task_of(cluster).started_at_ms, task_of(cluster).finished_at_ms) == (5, 9)
    assert cluster.view.committed(W) == NOTHING


def test_handed_back_it_waits_again_uncharged_and_its_kind_counts_as_slow(cluster: InMemoryCluster) -> None:
    kind = ("u", cluster.view.demands["/u/job"])
    cluster.view.run_times.note_end(kind, 2)
    outcome = cluster.observe(PREFILLED, TaskState.PENDING, error="handed back, not begun")
    task = task_of(cluster)
    assert (task.state, task.preemptions, task.failures) == (TaskState.PENDING, 0, 0)
    assert task.causes == ("attempt 0 on q: handed back, not begun",)
    assert ForgetAttempt(PREFILLED, W) in outcome.effects
    assert (cluster.view.run_times.expected_ms(kind) or 0) >= 1000
    cluster.observe(FIRST, TaskState.SUCCEEDED)
    assert ("/u/job/1", W) in cluster.schedule().assignments
    assert task_of(cluster).attempt == 1, "what was handed back is never started under its old number"


@pytest.mark.parametrize(
    "event",
    [
        WorkerLost(W, "not heard"), WorkerLate(W, 1_000), AttemptMissing(PREFILLED, "its worker restarted"),
        WorkerCordoned(W, "bad disk"), WorkerCordoned(W, "bad disk", drain=True),
    ],
)  # fmt: skip
def test_it_goes_elsewhere_at_no_charge(cluster: InMemoryCluster, event: object) -> None:
    """With max_retries_preemption=0 a charge would fail the task, and with it the job."""
    if isinstance(event, WorkerLost):
        cluster.observe(FIRST, TaskState.SUCCEEDED)
    outcome = cluster.do(event)
    assert (task_of(cluster).state, task_of(cluster).preemptions) == (TaskState.PENDING, 0)
    if isinstance(event, WorkerCordoned) and not event.drain:
        assert [effect.attempt_id for effect in outcome.effects if isinstance(effect, StopAttempt)] == [PREFILLED]
        assert task_of(cluster, FIRST).state is TaskState.RUNNING, "a cordon leaves alone what runs"


def test_stopped_before_it_began_it_holds_nothing_meanwhile(cluster: InMemoryCluster) -> None:
    cluster.stop("/u/job")
    assert cluster.view.bookings[PREFILLED].stopping
    cluster.observe(FIRST, TaskState.KILLED)
    assert cluster.view.committed(W) == NOTHING
    cluster.observe(PREFILLED, TaskState.KILLED)
    assert cluster.view.is_settled("/u/job")


@pytest.mark.parametrize("is_restarted", [False, True])
def test_one_that_began_before_its_stop_holds_its_place(cluster, restarted, is_restarted: bool) -> None:
    cluster.stop("/u/job")
    if is_restarted:
        cluster.view = restarted(cluster.view)
    cluster.observe(PREFILLED, TaskState.RUNNING)
    cluster.observe(FIRST, TaskState.KILLED)
    assert cluster.view.committed(W) == resources(1, 1)
    assert not cluster.observe(PREFILLED, TaskState.RUNNING).changes, "a repeated report changed something"
    cluster.observe(PREFILLED, TaskState.KILLED)
    assert cluster.view.committed(W) == NOTHING


def test_where_there_is_room_it_begins_at_once(cluster: InMemoryCluster) -> None:
    cluster.do(Assigned(TaskId("/u/job/2"), W, prefilled=True))
    cluster.observe(FIRST, TaskState.SUCCEEDED)
    plan = cluster.schedule()
    assert plan.begun == [PREFILLED], "the first that was prefilled, and no more than there is room for"
    assert cluster.effects[-1] == StartAttempt(PREFILLED, W)
    assert cluster.view.committed(W) == resources(1, 1)
    assert cluster.schedule().begun == []


def test_what_was_lent_is_not_given_away_while_something_may_begin_in_its_place(cluster: InMemoryCluster) -> None:
    """The parent may end, and the attempt that was prefilled then begins with the cpu of the parent."""
    cluster.do(LendCpu(FIRST, on=True))
    plan = cluster.schedule()
    assert (plan.assignments, plan.begun) == ([], [])
    cluster.observe(PREFILLED, TaskState.PENDING)
    assert cluster.schedule().assignments == [("/u/job/1", W)]


def test_nothing_is_prefilled_where_cpu_was_lent(cluster: InMemoryCluster) -> None:
    cluster.observe(PREFILLED, TaskState.PENDING)
    cluster.do(LendCpu(FIRST, on=True))
    cluster.do(LendCpu(FIRST, on=False))
    with pytest.raises(Conflict, match="lends its cpu"):
        cluster.do(Assigned(TaskId("/u/job/1"), W, prefilled=True))


def test_one_that_waits_for_its_children_has_begun(cluster: InMemoryCluster) -> None:
    cluster.do(LendCpu(PREFILLED, on=False))
    assert cluster.view.bookings[PREFILLED].prefilled, "the end of a wait that nobody knows of says nothing"
    cluster.do(LendCpu(PREFILLED, on=True))
    assert not cluster.view.bookings[PREFILLED].prefilled


@pytest.mark.parametrize("spec", [{"ports": ("http",)}, {"exclusive": True}, {"scheduling_timeout_ms": 1000}])
def test_what_is_never_prefilled(spec: dict[str, object]) -> None:
    cluster = InMemoryCluster()
    cluster.connect("q", resources(1, 4))
    cluster.launch(replicas=2, **spec)
    with pytest.raises(Conflict, match="not a job of plain tasks"):
        cluster.do(Assigned(TaskId("/u/job/1"), W, prefilled=True))


class TestReconnection:
    def seen(self, name: AttemptId, state: TaskState) -> AttemptObserved:
        return AttemptObserved(name, W, state)

    def test_what_waits_there_goes_on_and_what_need_not_wait_is_sent_again(self, cluster: InMemoryCluster) -> None:
        there = [self.seen(FIRST, TaskState.RUNNING), self.seen(PREFILLED, TaskState.ASSIGNED)]
        found = cluster.reconnect("q", "a", there)
        assert (found.to_start, found.to_stop) == ([], [])
        assert cluster.view.bookings[PREFILLED].prefilled
        cluster.do(Begun(PREFILLED))
        assert cluster.reconnect("q", "a", there).to_start == [PREFILLED]

    def test_what_was_handed_back_meanwhile_waits_for_another_place(self, cluster: InMemoryCluster) -> None:
        strange = AttemptId("/u/strange/0:0")
        handed_back = [self.seen(name, TaskState.PENDING) for name in (PREFILLED, strange)]
        found = cluster.reconnect("q", "a", [self.seen(FIRST, TaskState.RUNNING), *handed_back])
        assert task_of(cluster).state is TaskState.PENDING
        assert found.to_forget == [strange]

    def test_after_a_restart_nothing_counts_as_begun_that_was_not_seen(self, cluster, restarted) -> None:
        cluster.view = restarted(cluster.view)
        assert cluster.view.committed(W) == resources(1, 1)
        found = cluster.reconnect("q", "a", [self.seen(FIRST, TaskState.RUNNING)])
        assert found.to_start == [PREFILLED], "its start may not have been sent"
        assert cluster.view.bookings[PREFILLED].prefilled
