"""Accelerators that a reservation holds are for the other jobs of its tree."""

from iris.domain.events import LendCpu
from iris.domain.ids import AttemptId
from iris.domain.resources import Device
from iris.domain.states import PriorityBand, TaskState
from iris.sched.plan import plan_round
from iris.testing.scheduling import resources

V5P_8 = Device("tpu", "v5p-8", 4)
V5P_16 = Device("tpu", "v5p-16", 4)  # two hosts a slice
HOLDS = resources(0.1, 0.1, device=V5P_8)
USES = resources(8, 16, device=V5P_8)


def placed(plan):
    return [(task, worker) for task, worker in plan.assignments]


def free_chips(cluster, worker):
    return cluster.view.free(worker).device.count


def one_host(cluster):
    return cluster.connect("w", resources(64, 256, device=V5P_8))


def test_a_child_uses_what_its_tree_holds_and_others_wait(cluster):
    worker = one_host(cluster)
    cluster.submit("/u/exp", HOLDS, reserve=True)
    cluster.schedule()
    assert free_chips(cluster, worker) == 0
    cluster.submit("/u/other", USES)
    cluster.submit("/u/exp/train", USES)
    cluster.submit("/u/exp/eval", USES)
    assert placed(cluster.schedule()) == [("/u/exp/train/0", worker)]
    assert free_chips(cluster, worker) == 0, "what is held and used counts once"
    cluster.observe("/u/exp/train/0:0", TaskState.SUCCEEDED)
    assert placed(cluster.schedule()) == [("/u/exp/eval/0", worker)]
    cluster.observe("/u/exp/eval/0:0", TaskState.SUCCEEDED)
    assert placed(cluster.schedule()) == []
    cluster.observe("/u/exp/0:0", TaskState.SUCCEEDED)
    assert placed(cluster.schedule()) == [("/u/other/0", worker)]


def test_half_of_what_is_held_is_lent_twice(cluster):
    worker = one_host(cluster)
    cluster.submit("/u/exp", HOLDS, reserve=True)
    cluster.schedule()
    two = resources(1, 1, device=Device("tpu", "v5p-8", 2))
    cluster.submit("/u/exp/a", two, replicas=3)
    assert placed(cluster.schedule()) == [("/u/exp/a/0", worker), ("/u/exp/a/1", worker)]
    assert free_chips(cluster, worker) == 0


def test_what_runs_keeps_its_chips_when_the_reservation_ends(cluster):
    worker = one_host(cluster)
    cluster.submit("/u/exp", resources(0.1, 0.1))
    cluster.submit("/u/exp/hold", HOLDS, reserve=True)
    cluster.schedule()
    cluster.submit("/u/exp/train", USES)
    cluster.schedule()
    cluster.stop("/u/exp/hold")
    cluster.observe("/u/exp/hold/0:0", TaskState.KILLED)
    cluster.submit("/u/other", USES)
    assert placed(cluster.schedule()) == []
    cluster.observe("/u/exp/train/0:0", TaskState.SUCCEEDED)
    assert free_chips(cluster, worker) == 4
    assert placed(cluster.schedule()) == [("/u/other/0", worker)]


def test_a_reservation_on_its_way_out_lends_nothing_more(cluster):
    worker = one_host(cluster)
    cluster.submit("/u/exp", resources(0.1, 0.1))
    cluster.submit("/u/exp/hold", HOLDS, reserve=True)
    cluster.schedule()
    cluster.stop("/u/exp/hold")
    cluster.submit("/u/exp/train", USES)
    assert placed(cluster.schedule()) == []
    cluster.observe("/u/exp/hold/0:0", TaskState.KILLED)
    assert placed(cluster.schedule()) == [("/u/exp/train/0", worker)]


def test_a_reservation_does_not_hold_what_another_of_its_tree_holds(cluster):
    one_host(cluster)
    cluster.submit("/u/exp", HOLDS, reserve=True)
    cluster.schedule()
    cluster.submit("/u/exp/more", HOLDS, reserve=True)
    assert placed(cluster.schedule()) == []


def test_a_reservation_comes_where_its_tree_runs_already_only_when_there_is_room(cluster):
    worker = one_host(cluster)
    cluster.submit("/u/exp", resources(0.1, 0.1))
    cluster.submit("/u/exp/train", resources(1, 1, device=Device("tpu", "v5p-8", 2)))
    cluster.schedule()
    cluster.submit("/u/exp/hold", resources(0.1, 0.1, device=Device("tpu", "v5p-8", 2)), reserve=True)
    cluster.schedule()
    assert free_chips(cluster, worker) == 2, "what the tree uses is what the reservation holds"
    cluster.submit("/u/other", resources(1, 1, device=Device("tpu", "v5p-8", 2)))
    cluster.schedule()
    assert free_chips(cluster, worker) == 0
    cluster.observe("/u/exp/train/0:0", TaskState.SUCCEEDED)
    assert free_chips(cluster, worker) == 0


def test_a_gang_takes_the_slice_that_is_held_for_it(cluster):
    for name in ("s1", "s2"):
        for number in range(2):
            attributes = {"tpu-name": name, "tpu-worker-id": str(number)}
            cluster.connect(f"{name}-{number}", resources(64, 256, device=V5P_16), **attributes)
    gang = {"replicas": 2, "coscheduling_group_by": "tpu-name"}
    cluster.submit("/u/exp", resources(0.1, 0.1, device=V5P_16), reserve=True, **gang)
    held = [worker for _, worker in placed(cluster.schedule())]
    other = resources(8, 16, device=V5P_16)
    cluster.submit("/u/other", other, **gang)
    cluster.submit("/u/third", other, **gang)
    cluster.schedule()
    cluster.submit("/u/exp/train", other, **gang)
    assert placed(cluster.schedule()) == [(f"/u/exp/train/{n}", worker) for n, worker in enumerate(held)]
    assert plan_round(cluster.view, cluster.now_ms).assignments == []


def test_jobs_that_wait_alike_do_not_hide_one_that_has_room(cluster):
    worker = one_host(cluster)
    cluster.submit("/u/exp", HOLDS, reserve=True)
    cluster.schedule()
    for number in range(5):
        cluster.submit(f"/u/other-{number}", USES)
    cluster.submit("/u/exp/train", USES)
    assert placed(cluster.schedule()) == [("/u/exp/train/0", worker)]


def test_more_urgent_work_gets_the_host_in_the_end(cluster):
    worker = one_host(cluster)
    cluster.submit("/u/exp", HOLDS, reserve=True, band=PriorityBand.BATCH, max_retries_preemption=9)
    cluster.schedule()
    cluster.submit("/u/exp/train", USES, band=PriorityBand.BATCH, max_retries_preemption=9)
    cluster.schedule()
    cluster.submit("/u/urgent", USES, band=PriorityBand.PRODUCTION)
    for _ in range(6):
        cluster.schedule()
        for name, booking in list(cluster.view.bookings.items()):
            if booking.stopping:
                cluster.observe(name, TaskState.KILLED)
    assert cluster.task("/u/urgent/0").worker_id == worker
    assert free_chips(cluster, worker) == 0


def test_a_parent_that_waits_lends_cpu_and_chips(cluster):
    worker = cluster.connect("w", resources(8, 256, device=V5P_8))
    cluster.submit("/u/exp", resources(1, 1, device=V5P_8), reserve=True)
    cluster.schedule()
    cluster.observe("/u/exp/0:0", TaskState.RUNNING)
    cluster.submit("/u/exp/train", USES)
    assert placed(cluster.schedule()) == []
    cluster.do(LendCpu(AttemptId("/u/exp/0:0"), True))
    assert placed(cluster.schedule()) == [("/u/exp/train/0", worker)]
