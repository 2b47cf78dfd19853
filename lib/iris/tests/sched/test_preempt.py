"""Preemption: only downward, only what helps, the cheapest, gangs whole."""

import pytest

from iris.domain.constraints import Constraint, ConstraintOp
from iris.domain.events import Preempted
from iris.domain.ids import AttemptId
from iris.domain.states import JobState, PriorityBand, TaskState
from iris.sched.plan import plan_round
from iris.sched.preempt import Victims
from iris.testing.scheduling import resources

PRODUCTION, INTERACTIVE, BATCH = PriorityBand


def victims(plan) -> list[str]:
    return [event.attempt_id for event in plan.preemptions]


@pytest.fixture
def full(cluster):
    """One worker of 4 cores, full of batch work: a task of 3 cores and one of 1."""
    cluster.connect("w", resources(4, 16))
    cluster.submit("/low/three", resources(3), band=BATCH)
    cluster.submit("/low/one", resources(1), band=BATCH)
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
    full.observe("/low/one/0:0", TaskState.KILLED)
    assert [task for task, _ in full.schedule().assignments] == ["/u/job/0"]


def test_nothing_more_is_preempted_while_the_victims_end(full):
    full.submit("/u/job", resources(1))
    full.schedule()
    assert victims(full.schedule()) == []


def test_one_host_takes_several_in_one_round(full):
    full.submit("/u/job", resources(1), replicas=3)
    assert sorted(victims(full.schedule())) in (["/low/one/0:0", "/low/three/0:0"], ["/low/three/0:0"])
    assert victims(full.schedule()) == []


def test_never_pointless(full):
    full.submit("/u/job", resources(5))
    plan = full.schedule()
    assert victims(plan) == []
    assert plan.reasons["/u/job"] == "needs 5 cores; worker w has 0 of 4 free"


def test_never_of_the_same_band_nor_upward(cluster):
    cluster.connect("w", resources(1, 16))
    cluster.submit("/u/first", band=PRODUCTION)
    cluster.schedule()
    for band in PriorityBand:
        cluster.submit(f"/u/{band.word}", band=band)
    assert victims(cluster.schedule()) == []


@pytest.mark.parametrize("band", [INTERACTIVE, BATCH])
def test_work_of_one_band_never_takes_the_place_of_other_work_of_it(cluster, band):
    """Also while something less urgent runs elsewhere, of which the end would not help."""
    cluster.connect("large", resources(2, 16))
    cluster.connect("small", resources(1, 16))
    cluster.submit("/u/first", resources(2), band=band)
    cluster.submit("/low/other", resources(1), band=BATCH)
    cluster.schedule()
    cluster.submit("/u/second", resources(2), band=band)
    plan = cluster.schedule()
    assert victims(plan) == []
    assert "/u/second" in plan.reasons


def test_interactive_work_takes_the_place_of_batch_while_production_runs_too(cluster):
    cluster.connect("w", resources(2, 16))
    cluster.submit("/u/prod", band=PRODUCTION)
    cluster.submit("/low/batch", band=BATCH)
    cluster.schedule()
    cluster.submit("/u/interactive", band=INTERACTIVE)
    assert victims(cluster.schedule()) == ["/low/batch/0:0"]


def test_batch_before_interactive(cluster):
    cluster.connect("w", resources(2, 16))
    cluster.submit("/u/interactive")
    cluster.submit("/u/batch", band=BATCH)
    cluster.schedule()
    cluster.submit("/u/prod", band=PRODUCTION)
    assert victims(cluster.schedule()) == ["/u/batch/0:0"]


def test_a_gang_goes_whole_and_only_when_nothing_cheaper_will_do(cluster):
    for name in ("a", "b", "c"):
        cluster.connect(name, resources(2, 16), pool="p" if name != "c" else "q")
    cluster.submit("/low/gang", resources(2), replicas=2, coscheduling_group_by="pool", band=BATCH)
    cluster.submit("/low/single", resources(2), band=BATCH)
    cluster.schedule()
    cluster.submit("/u/one", resources(2))
    assert victims(cluster.schedule()) == ["/low/single/0:0"]
    cluster.submit("/u/two", resources(2))
    plan = cluster.schedule()
    assert victims(plan) == ["/low/gang/0:0"]
    gang = cluster.view.tasks["/low/gang"]
    assert [task.state for task in gang] == [TaskState.PENDING] * 2
    why = "killed: gang restarted because task 0 lost worker a: preempted for /u/two (interactive)"
    assert gang[1].causes == (f"attempt 0 on b: {why}",)


def test_a_gang_makes_its_room_in_the_cheapest_group_and_keeps_it(cluster):
    for name in ("a1", "a2", "b1", "b2"):
        cluster.connect(name, resources(2, 16), pool=name[0])
    cluster.submit("/low/big", resources(2), band=BATCH)  # a1
    cluster.submit("/low/two", resources(2), band=BATCH)  # a2
    cluster.submit("/low/small", resources(1), band=BATCH)  # b1
    cluster.schedule()
    cluster.submit("/u/gang", resources(2), replicas=2, coscheduling_group_by="pool")
    cluster.submit("/low/more", resources(1), replicas=4, band=BATCH)
    plan = cluster.schedule()
    assert victims(plan) == ["/low/small/0:0"]
    assert plan.assignments == [], "nobody slips in between"
    cluster.observe("/low/small/0:0", TaskState.KILLED)
    assert [worker for _, worker in cluster.schedule().assignments] == ["b1", "b2"]


def test_no_gang_is_moved_for_a_gang_that_would_not_fit_anyway(cluster):
    for name in ("a1", "a2"):
        cluster.connect(name, resources(2, 16), pool="a")
    cluster.submit("/low/work", resources(2), replicas=2, band=BATCH)
    cluster.schedule()
    cluster.submit("/u/gang", resources(2), replicas=3, coscheduling_group_by="pool")
    assert victims(cluster.schedule()) == []


def test_the_last_preemption_ends_the_job(cluster):
    cluster.connect("w", resources(1, 16))
    cluster.submit("/low/job", band=BATCH, max_retries_preemption=0)
    cluster.schedule()
    cluster.submit("/u/job")
    cluster.schedule()
    job = cluster.job("/low/job")
    assert job.state is JobState.WORKER_FAILED
    assert job.error == "task 0 was preempted (max_retries_preemption=0): preempted for /u/job (interactive)"
    assert cluster.task("/low/job/0").state is TaskState.PREEMPTED
    cluster.observe("/low/job/0:0", TaskState.KILLED)
    assert cluster.view.is_settled("/low/job")


def test_a_preemption_that_comes_too_late_changes_nothing(full):
    full.observe("/low/one/0:0", TaskState.SUCCEEDED)
    assert not full.do(Preempted(AttemptId("/low/one/0:0"), "for nothing")).changes


def test_nothing_of_a_job_starts_in_the_round_that_preempts_something_of_it(cluster):
    """Once, that round assigned another task of the job elsewhere, which the reducer refuses."""
    cluster.connect("w1", resources(2), zone="a")
    cluster.submit("/low/two", resources(2), replicas=2, band=BATCH)
    cluster.schedule()
    cluster.connect("w2", resources(2), zone="b")
    cluster.submit("/u/job", resources(2), constraints=(Constraint("zone", ConstraintOp.EQ, ("a",)),))
    plan = cluster.schedule()
    assert victims(plan) == ["/low/two/0:0"]
    assert plan.assignments == []
    assert "make room for other work" in str(plan.reasons["/low/two"])
    cluster.observe("/low/two/0:0", TaskState.KILLED)
    assert [task for task, _ in cluster.schedule().assignments] == ["/u/job/0", "/low/two/0"]


def test_of_those_that_were_taken_first_who_turns_out_to_be_spared_is_spared(cluster):
    """The cheap ones are taken first and are not enough; with the dear one, one of them need not go."""
    cluster.connect("w", resources(4, 16))
    for name, cpu in (("a", 0.5), ("b", 0.5), ("c", 2)):
        cluster.submit(f"/low/{name}", resources(cpu, 1), band=BATCH)
    cluster.schedule()
    cluster.submit("/u/job", resources(3.5, 1))
    found = victims(cluster.schedule())
    assert len(found) == 2
    assert "/low/c/0:0" in found


def count_calls(monkeypatch, name: str) -> list[object]:
    """What is looked for in the rounds from now on."""
    asked: list[object] = []
    original = getattr(Victims, name)
    monkeypatch.setattr(Victims, name, lambda self, *args: (asked.append(args), original(self, *args))[1])
    return asked


def test_of_many_gangs_that_wait_equal_ones_are_tried_once_and_others_as_far_as_there_is_time(cluster, monkeypatch):
    """Each search looks at every host; a round must stay short however many gangs wait."""
    for name in ("a1", "a2"):
        cluster.connect(name, resources(2, 16), pool="a")
    cluster.submit("/low/work", resources(2), replicas=2, band=BATCH)
    cluster.schedule()
    for number in range(5):
        cluster.submit(f"/u/same{number}", resources(2), replicas=3, coscheduling_group_by="pool")
    asked = count_calls(monkeypatch, "for_gang")
    plan_round(cluster.view, cluster.now_ms)
    assert len(asked) == 1
    for number in range(20):
        cluster.submit(f"/u/gang{number}", resources(2, 1 + number / 64), replicas=3, coscheduling_group_by="pool")
    asked.clear()
    plan = plan_round(cluster.view, cluster.now_ms)
    assert len(asked) == 16
    assert len(plan.reasons) == 25, "all are told why they wait"


def test_where_nothing_less_urgent_runs_nothing_is_looked_for(cluster, monkeypatch):
    cluster.connect("w", resources(2, 16))
    cluster.submit("/u/first", resources(2))
    cluster.schedule()
    asked = count_calls(monkeypatch, "for_task")
    cluster.submit("/u/second", resources(2))
    cluster.submit("/low/third", resources(2), band=BATCH)
    assert plan_round(cluster.view, cluster.now_ms).preemptions == []
    assert asked == []
    cluster.submit("/u/urgent", resources(2), band=PRODUCTION)
    assert victims(plan_round(cluster.view, cluster.now_ms)) == ["/u/first/0:0"]
    assert len(asked) == 1
