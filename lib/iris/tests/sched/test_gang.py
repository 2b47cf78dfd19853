import pytest

from iris.domain.constraints import Constraint, ConstraintOp
from iris.domain.events import Assigned, WorkerCordoned, WorkerUncordoned
from iris.domain.ids import TaskId, WorkerId
from iris.domain.resources import Device
from iris.domain.states import FailureKind, TaskState
from rigging.errors import Conflict
from support.iris.scheduling import resources

V5P_16 = Device("tpu", "v5p-16", 4)  # two hosts a slice
ONE_HOST = resources(8, 16, device=V5P_16)


def placed(plan) -> list[str]:
    return [worker for _, worker in plan.assignments]


@pytest.fixture
def slices(cluster):
    """Three slices of two hosts each; the hosts became known in another order than theirs."""
    for name in ("s3", "s1", "s2"):
        for number in (1, 0):
            attributes = {"tpu-name": name, "tpu-worker-id": str(number)}
            cluster.connect(f"{name}-{number}", resources(64, 256, device=V5P_16), **attributes)
    return cluster


def gang(cluster, name="/u/job", replicas=2, need=ONE_HOST, **fields):
    cluster.submit(name, need, replicas=replicas, coscheduling_group_by="tpu-name", **fields)


def test_worker_ten_stands_behind_worker_nine(cluster):
    for number in reversed(range(12)):
        cluster.connect(f"w{number}", resources(8, 16), pool="p", **{"tpu-worker-id": str(number)})
    cluster.submit(need=resources(8), replicas=12, coscheduling_group_by="pool")
    assert placed(cluster.schedule()) == [f"w{number}" for number in range(12)]


def test_a_multislice_job_takes_whole_slices_one_after_the_other_once_all_are_free(slices):
    gang(slices, "/u/one")
    assert placed(slices.schedule()) == ["s1-0", "s1-1"]
    gang(slices, "/u/three", replicas=6)
    plan = slices.schedule()
    assert placed(plan) == []
    assert plan.reasons == {
        "/u/three": "needs 3 whole v5p-16 slices of 2 hosts each (2 of them free now); 3 v5p-16 slices match,"
        " the best, s1, has room for 0; next expected when job /u/one ends"
    }
    for index in range(2):
        slices.observe(f"/u/one/{index}:0", TaskState.SUCCEEDED)
    assert placed(slices.schedule()) == ["s1-0", "s1-1", "s2-0", "s2-1", "s3-0", "s3-1"]


def test_two_gangs_never_share_a_host_though_there_is_room(cluster):
    for number in range(2):
        cluster.connect(f"w{number}", resources(8, 64), pool="p")
    for name, cores in (("/u/a", 5.5), ("/u/b", 1)):
        cluster.submit(name, resources(cores), replicas=2, coscheduling_group_by="pool")
    for tasks in (["/u/a/0", "/u/a/1"], []):  # in the round that places the first, and in the next
        plan = cluster.schedule()
        assert [task for task, _ in plan.assignments] == tasks
        assert plan.reasons["/u/b"].endswith("has room for 0; next expected when job /u/a ends")
    with pytest.raises(Conflict, match="worker w1 has a gang; /u/b/0 of another gang cannot share it"):
        cluster.do(Assigned(TaskId("/u/b/0"), WorkerId("w1")))


def test_a_gang_waits_for_the_hosts_of_one_that_is_being_stopped(slices):
    for name in ("/u/a", "/u/b", "/u/c"):
        gang(slices, name)
    slices.schedule()
    gang(slices, "/u/next")
    slices.stop("/u/b")
    assert slices.schedule().reasons == {"/u/next": "waits for attempts on s2-0 and other hosts to end"}
    for index in range(2):
        slices.observe(f"/u/b/{index}:0", TaskState.KILLED)
    assert placed(slices.schedule()) == ["s2-0", "s2-1"]


def test_plain_tasks_may_use_what_a_gang_leaves(cluster):
    cluster.connect("w0", resources(8, 64), pool="p")
    cluster.connect("w1", resources(8, 64), pool="p")
    cluster.submit("/u/gang", resources(6), replicas=2, coscheduling_group_by="pool")
    cluster.submit("/u/plain", resources(2), replicas=2)
    assert len(cluster.schedule().assignments) == 4


def test_soft_constraints_choose_the_slice_and_alternatives_of_the_device_will_do(slices):
    prefer = Constraint("tpu-name", ConstraintOp.EQ, ("s3",), soft=True)
    gang(slices, need=resources(8, 16, device=Device("tpu", "v4-16", 4, ("v5p-16",))), constraints=(prefer,))
    assert placed(slices.schedule()) == ["s3-0", "s3-1"]


class TestBadHosts:
    def test_a_host_on_which_starts_fail_is_cordoned_and_gangs_avoid_it(self, slices):
        gang(slices, max_retries_failure=10)
        for attempt in range(3):
            assert placed(slices.schedule()) == ["s1-0", "s1-1"]
            bad = {"failure_kind": FailureKind.DEVICE, "error": "device or resource busy"}
            slices.observe(f"/u/job/1:{attempt}", TaskState.RUNNING)
            slices.observe(f"/u/job/1:{attempt}", TaskState.FAILED, **bad)
            slices.observe(f"/u/job/0:{attempt}", TaskState.KILLED)
        worker = slices.view.workers["s1-1"]
        assert (
            worker.cordon_reason
            == "3 attempts in a row failed because of the host: /u/job/1:2: device or resource busy"
        )
        assert placed(slices.schedule()) == ["s2-0", "s2-1"]
        assert slices.task("/u/job/1").failures == 0, "the user is not charged for a bad host"

    def test_a_command_that_runs_forgives(self, cluster):
        cluster.connect("w", resources(1, 4))
        cluster.submit(max_retries_failure=10)
        for attempt in range(6):
            cluster.schedule()
            bad = attempt % 3 < 2
            cluster.observe(f"/u/job/0:{attempt}", TaskState.RUNNING)
            kind = FailureKind.DEVICE if bad else FailureKind.USER
            cluster.observe(f"/u/job/0:{attempt}", TaskState.FAILED, failure_kind=kind)
        for number in range(4):  # commands that are not there do not speak against the host
            cluster.launch(f"/u/typo{number}")
            cluster.observe(f"/u/typo{number}/0:0", TaskState.FAILED, failure_kind=FailureKind.START)
        worker = cluster.view.workers["w"]
        assert (worker.cordon_reason, worker.strikes) == ("", 0)

    def test_an_uncordoned_host_is_used_again(self, slices):
        for name in list(slices.view.workers):
            slices.do(WorkerCordoned(name, "bad fan"))
        gang(slices)
        assert placed(slices.schedule()) == []
        slices.do(WorkerUncordoned(WorkerId("s2-0")))
        slices.do(WorkerUncordoned(WorkerId("s2-1")))
        assert placed(slices.schedule()) == ["s2-0", "s2-1"]

    def test_draining_moves_the_gang_whole_and_charges_nobody(self, slices):
        gang(slices)
        slices.schedule()
        slices.do(WorkerCordoned(WorkerId("s1-1"), "new disk", drain=True))
        tasks = slices.view.tasks["/u/job"]
        assert [(task.state, task.preemptions) for task in tasks] == [(TaskState.PENDING, 0)] * 2
        assert tasks[1].causes == ("attempt 0 on s1-1: worker s1-1 is drained: new disk",)
        for index in range(2):
            slices.observe(f"/u/job/{index}:0", TaskState.KILLED)
        assert placed(slices.schedule()) == ["s2-0", "s2-1"]
        slices.reconnect("s1-1", "b", [])
        worker = slices.view.workers["s1-1"]
        assert (worker.cordon_reason, worker.cordoned_at_ms > 0) == ("new disk", True), "it outlives a reconnection"
