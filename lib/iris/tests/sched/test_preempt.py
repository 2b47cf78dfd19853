from typing import Any

import pytest

from iris.domain.constraints import Constraint, ConstraintOp
from iris.domain.effects import StopAttempt
from iris.domain.endpoints import CHECKPOINT, RegisteredEndpoint
from iris.domain.events import EndpointRegistered, Preempted, WorkerCordoned
from iris.domain.ids import AttemptId, JobId, WorkerId
from iris.domain.states import JobState, PreemptionReason, PriorityBand, TaskState
from iris.sched.plan import RoundPlan, plan_round
from iris.sched.preempt import Victims
from support.iris.scheduling import InMemoryCluster, resources

PRODUCTION, INTERACTIVE, BATCH = PriorityBand
Asked = tuple[str, float, PriorityBand]


def victims(plan: RoundPlan) -> list[str]:
    return sorted(event.attempt_id for event in plan.preemptions)


def low(cluster: InMemoryCluster, **cores: float) -> None:
    """Batch work, of so many cores each."""
    for name, cpu in cores.items():
        cluster.submit(f"/low/{name}", resources(cpu), band=BATCH)


def pools(cluster: InMemoryCluster, *names: str) -> None:
    for name in names:
        cluster.connect(name, resources(2, 16), pool=name[0])


def gang(cluster: InMemoryCluster, name: str, replicas: int = 2, need: Any = None, **fields: Any) -> None:
    cluster.submit(name, need or resources(2), replicas=replicas, coscheduling_group_by="pool", **fields)


@pytest.fixture
def full(cluster: InMemoryCluster) -> InMemoryCluster:
    """One worker of 4 cores, full of batch work: a task of 3 cores and one of 1."""
    cluster.connect("w", resources(4, 16))
    low(cluster, three=3, one=1)
    cluster.schedule()
    return cluster


def test_more_urgent_work_takes_the_place_of_the_least_that_makes_room(full):
    full.submit("/u/job", resources(1))
    plan = full.schedule()
    assert victims(plan) == ["/low/one/0:0"]
    assert plan.reasons["/u/job"] == "waits for attempts on w to end"
    task = full.task("/low/one/0")
    assert (task.state, task.preemptions, task.failures) == (TaskState.PENDING, 1, 0)
    assert task.causes == ("attempt 0 on w: preempted for /u/job (interactive)",)
    assert victims(full.schedule()) == [], "nothing more while the victims end"
    full.observe("/low/one/0:0", TaskState.KILLED)
    assert not full.do(Preempted(AttemptId("/low/one/0:0"), "too late")).changes
    assert [task for task, _ in full.schedule().assignments] == ["/u/job/0"]


@pytest.mark.parametrize(
    ("reason", "grace_ms", "told"),
    [("band", 0, 30_000), ("drain", 90_000, 90_000), ("spot", 90_000, 25_000), ("maintenance", 20_000, 20_000)],
)
def test_all_members_have_the_same_notice_and_no_failure_is_charged(
    cluster: InMemoryCluster, reason: str, grace_ms: int, told: int
) -> None:
    pools(cluster, "a1", "a2", "a3")
    gang(cluster, "/low/gang", 3, band=BATCH, grace_ms=grace_ms)
    cluster.schedule()
    cluster.effects.clear()
    if reason == "band":
        gang(cluster, "/u/gang", 2)
        cluster.schedule()
    elif reason == "drain":
        cluster.do(WorkerCordoned(WorkerId("a2"), "new kernel", drain=True))
    else:
        cluster.do(Preempted(AttemptId("/low/gang/1:0"), "the host ends", PreemptionReason(reason)))
    stops = [effect for effect in cluster.effects if isinstance(effect, StopAttempt)]
    assert [(stop.preemption, stop.grace_ms) for stop in stops] == [(reason, told)] * 3
    assert {task.failures for task in cluster.view.tasks[JobId("/low/gang")]} == {0}


def test_the_least_lost_work_is_taken_of_what_has_run_for_a_minute(cluster: InMemoryCluster) -> None:
    cluster.connect("w", resources(4, 16))
    names = ["old", "saved", "young", "new"]
    for index, name in enumerate(names):
        attempt = f"/low/{name}/0:0"
        low(cluster, **{name: 1})
        cluster.schedule()
        if name != "new":
            cluster.observe(attempt, TaskState.RUNNING)
        cluster.now_ms += (100_000, 100_000, 1000, 0)[index]
    saved = RegisteredEndpoint(f"/low/saved/{CHECKPOINT}", AttemptId("/low/saved/0:0"), "-", {}, cluster.now_ms)
    cluster.do(EndpointRegistered(saved))
    cluster.now_ms += 5000
    found = []
    for number in range(4):
        cluster.submit(f"/u/job{number}", resources(1))
        found += victims(cluster.schedule())
    assert found == [f"/low/{name}/0:0" for name in ("new", "saved", "old", "young")]


def test_one_host_takes_several_in_one_round_and_never_in_vain(full):
    full.submit("/u/huge", resources(5))
    plan = full.schedule()
    assert (victims(plan), plan.reasons["/u/huge"]) == ([], "needs 5 cores; worker w has 0 of 4 free")
    full.submit("/u/job", resources(1), replicas=3)
    assert victims(full.schedule()) in (["/low/one/0:0", "/low/three/0:0"], ["/low/three/0:0"])
    assert victims(full.schedule()) == []


@pytest.mark.parametrize(
    ("workers", "running", "wants", "found"),
    [
        ([1], [("first", 1, PRODUCTION)], [(band.word, 1, band) for band in PriorityBand], []),
        # Also while something less urgent runs elsewhere, of which the end would not help.
        ([2, 1], [("first", 2, INTERACTIVE), ("other", 1, BATCH)], [("second", 2, INTERACTIVE)], []),
        ([2, 1], [("first", 2, BATCH), ("other", 1, BATCH)], [("second", 2, BATCH)], []),
        ([2], [("prod", 1, PRODUCTION), ("batch", 1, BATCH)], [("wants", 1, INTERACTIVE)], ["batch"]),
        ([2], [("interactive", 1, INTERACTIVE), ("batch", 1, BATCH)], [("wants", 1, PRODUCTION)], ["batch"]),
    ],
)
def test_only_downward_and_the_least_urgent_first(
    cluster: InMemoryCluster, workers: list[int], running: list[Asked], wants: list[Asked], found: list[str]
) -> None:
    for number, cores in enumerate(workers):
        cluster.connect(f"w{number}", resources(cores, 16))
    for jobs in (running, wants):
        for name, cpu, band in jobs:
            cluster.submit(f"/u/{name}", resources(cpu), band=band)
        plan = cluster.schedule()
    assert victims(plan) == [f"/u/{name}/0:0" for name in found]
    assert len(plan.reasons) == len(wants)


def test_a_gang_goes_whole_and_only_when_nothing_cheaper_will_do(cluster):
    pools(cluster, "p1", "p2", "q")
    gang(cluster, "/low/gang", band=BATCH)
    low(cluster, single=2)
    cluster.schedule()
    cluster.submit("/u/one", resources(2))
    assert victims(cluster.schedule()) == ["/low/single/0:0"]
    cluster.submit("/u/two", resources(2))
    assert victims(cluster.schedule()) == ["/low/gang/0:0"]
    tasks = cluster.view.tasks["/low/gang"]
    assert [task.state for task in tasks] == [TaskState.PENDING] * 2
    why = "killed: gang restarted because task 0 lost worker p1: preempted for /u/two (interactive)"
    assert tasks[1].causes == (f"attempt 0 on p2: {why}",)


def test_a_gang_makes_its_room_in_the_cheapest_group_and_keeps_it(cluster):
    pools(cluster, "a1", "a2", "b1", "b2")
    low(cluster, big=2, two=2, small=1)  # a1, a2, b1
    cluster.schedule()
    gang(cluster, "/u/gang")
    cluster.submit("/low/more", resources(1), replicas=4, band=BATCH)
    plan = cluster.schedule()
    assert victims(plan) == ["/low/small/0:0"]
    assert plan.assignments == [], "nobody slips in between"
    cluster.observe("/low/small/0:0", TaskState.KILLED)
    assert [worker for _, worker in cluster.schedule().assignments] == ["b1", "b2"]


def test_the_last_preemption_ends_the_job(cluster):
    cluster.connect("w", resources(1, 16))
    cluster.launch("/low/job", band=BATCH, max_retries_preemption=0)
    cluster.launch("/u/job")
    job = cluster.job("/low/job")
    assert job.state is JobState.WORKER_FAILED
    assert job.error == "task 0 was preempted (max_retries_preemption=0): preempted for /u/job (interactive)"
    assert cluster.task("/low/job/0").state is TaskState.PREEMPTED
    cluster.observe("/low/job/0:0", TaskState.KILLED)
    assert cluster.view.is_settled("/low/job")


def test_nothing_of_a_job_starts_in_the_round_that_preempts_something_of_it(cluster):
    """Once, that round assigned another task of the job elsewhere, which the reducer refuses."""
    cluster.connect("w1", resources(2), zone="a")
    cluster.launch("/low/two", resources(2), replicas=2, band=BATCH)
    cluster.connect("w2", resources(2), zone="b")
    cluster.submit("/u/job", resources(2), constraints=(Constraint("zone", ConstraintOp.EQ, ("a",)),))
    plan = cluster.schedule()
    assert (victims(plan), plan.assignments) == (["/low/two/0:0"], [])
    assert "make room for other work" in str(plan.reasons["/low/two"])
    cluster.observe("/low/two/0:0", TaskState.KILLED)
    assert [task for task, _ in cluster.schedule().assignments] == ["/u/job/0", "/low/two/0"]


def test_of_those_that_were_taken_first_who_turns_out_to_be_spared_is_spared(cluster):
    """The cheap ones are taken first and are not enough; with the dear one, one of them need not go."""
    cluster.connect("w", resources(4, 16))
    low(cluster, a=0.5, b=0.5, c=2)
    cluster.schedule()
    cluster.submit("/u/job", resources(3.5, 1))
    found = victims(cluster.schedule())
    assert (len(found), found[-1]) == (2, "/low/c/0:0")


def count_calls(monkeypatch: pytest.MonkeyPatch, name: str) -> list[object]:
    """What is looked for in the rounds from now on."""
    asked: list[object] = []
    original = getattr(Victims, name)
    monkeypatch.setattr(Victims, name, lambda self, *args: (asked.append(args), original(self, *args))[1])
    return asked


def test_of_many_gangs_that_wait_equal_ones_are_tried_once_and_others_as_far_as_there_is_time(cluster, monkeypatch):
    """Each search looks at every host; a round must stay short however many gangs wait."""
    pools(cluster, "a1", "a2")
    cluster.launch("/low/work", resources(2), replicas=2, band=BATCH)
    for number in range(5):
        gang(cluster, f"/u/same{number}", 3)
    asked = count_calls(monkeypatch, "for_gang")
    assert victims(plan_round(cluster.view, cluster.now_ms)) == [], "they would not fit anyway"
    assert len(asked) == 1
    for number in range(20):
        gang(cluster, f"/u/gang{number}", 3, resources(2, 1 + number / 64))
    asked.clear()
    plan = plan_round(cluster.view, cluster.now_ms)
    assert (len(asked), len(plan.reasons)) == (16, 25), "all are told why they wait"


def test_where_nothing_less_urgent_runs_nothing_is_looked_for(cluster, monkeypatch):
    cluster.connect("w", resources(2, 16))
    cluster.launch("/u/first", resources(2))
    asked = count_calls(monkeypatch, "for_task")
    cluster.submit("/u/second", resources(2))
    low(cluster, third=2)
    assert plan_round(cluster.view, cluster.now_ms).preemptions == []
    assert asked == []
    cluster.submit("/u/urgent", resources(2), band=PRODUCTION)
    assert victims(plan_round(cluster.view, cluster.now_ms)) == ["/u/first/0:0"]
    assert len(asked) == 1
