from iris.domain.events import LendCpu
from iris.domain.ids import AttemptId
from iris.domain.resources import Device
from iris.domain.states import PriorityBand, TaskState
from iris.sched.plan import plan_round
from support.iris.scheduling import resources

V5P_8 = Device("tpu", "v5p-8", 4)
V5P_16 = Device("tpu", "v5p-16", 4)  # two hosts a slice
HOLDS = resources(0.1, 0.1, device=V5P_8)
USES = resources(8, 16, device=V5P_8)


def free_chips(cluster, worker):
    return cluster.view.free(worker).device.count


def one_host(cluster):
    return cluster.connect("w", resources(64, 256, device=V5P_8))


def test_a_child_uses_what_its_tree_holds_and_others_wait(cluster):
    worker = one_host(cluster)
    cluster.launch("/u/exp", HOLDS, reserve=True)
    assert free_chips(cluster, worker) == 0
    for name in ("/u/other", "/u/alike"):  # those that wait alike do not hide one that has room
        cluster.submit(name, USES)
    cluster.submit("/u/exp/train", USES)
    cluster.submit("/u/exp/eval", USES)
    assert cluster.schedule().assignments == [("/u/exp/train/0", worker)]
    assert free_chips(cluster, worker) == 0, "what is held and used counts once"
    cluster.observe("/u/exp/train/0:0", TaskState.SUCCEEDED)
    assert cluster.schedule().assignments == [("/u/exp/eval/0", worker)]
    cluster.observe("/u/exp/eval/0:0", TaskState.SUCCEEDED)
    assert cluster.schedule().assignments == []
    cluster.observe("/u/exp/0:0", TaskState.SUCCEEDED)
    assert cluster.schedule().assignments == [("/u/other/0", worker)]


def test_a_reservation_does_not_hold_what_another_of_its_tree_holds_and_half_of_it_is_lent_twice(cluster):
    worker = one_host(cluster)
    cluster.launch("/u/exp", HOLDS, reserve=True)
    more = cluster.submit("/u/exp/more", HOLDS, reserve=True)
    assert cluster.schedule().assignments == []
    cluster.stop(more)
    cluster.submit("/u/exp/a", resources(1, 1, device=Device("tpu", "v5p-8", 2)), replicas=3)
    assert cluster.schedule().assignments == [("/u/exp/a/0", worker), ("/u/exp/a/1", worker)]
    assert free_chips(cluster, worker) == 0


def test_what_runs_keeps_its_chips_when_the_reservation_ends(cluster):
    worker = one_host(cluster)
    cluster.submit("/u/exp", resources(0.1, 0.1))
    cluster.launch("/u/exp/hold", HOLDS, reserve=True)
    cluster.submit("/u/exp/train", USES)
    cluster.schedule()
    cluster.stop("/u/exp/hold")
    cluster.observe("/u/exp/hold/0:0", TaskState.KILLED)
    cluster.submit("/u/other", USES)
    assert cluster.schedule().assignments == []
    cluster.observe("/u/exp/train/0:0", TaskState.SUCCEEDED)
    assert free_chips(cluster, worker) == 4
    assert cluster.schedule().assignments == [("/u/other/0", worker)]


def test_a_reservation_on_its_way_out_lends_nothing_more(cluster):
    worker = one_host(cluster)
    cluster.submit("/u/exp", resources(0.1, 0.1))
    cluster.launch("/u/exp/hold", HOLDS, reserve=True)
    cluster.stop("/u/exp/hold")
    cluster.submit("/u/exp/train", USES)
    assert cluster.schedule().assignments == []
    cluster.observe("/u/exp/hold/0:0", TaskState.KILLED)
    assert cluster.schedule().assignments == [("/u/exp/train/0", worker)]


def test_a_reservation_comes_where_its_tree_runs_already_only_when_there_is_room(cluster):
    worker = one_host(cluster)
    cluster.submit("/u/exp", resources(0.1, 0.1))
    cluster.launch("/u/exp/train", resources(1, 1, device=Device("tpu", "v5p-8", 2)))
    cluster.submit("/u/exp/hold", resources(0.1, 0.1, device=Device("tpu", "v5p-8", 2)), reserve=True)
    cluster.schedule()
    assert free_chips(cluster, worker) == 2, "what the tree uses is what the reservation holds"
    cluster.launch("/u/other", resources(1, 1, device=Device("tpu", "v5p-8", 2)))
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
    held = [worker for _, worker in cluster.schedule().assignments]
    other = resources(8, 16, device=V5P_16)
    cluster.submit("/u/other", other, **gang)
    cluster.launch("/u/third", other, **gang)
    cluster.submit("/u/exp/train", other, **gang)
    assert cluster.schedule().assignments == [(f"/u/exp/train/{n}", worker) for n, worker in enumerate(held)]
    assert plan_round(cluster.view, cluster.now_ms).assignments == []


def test_more_urgent_work_gets_the_host_in_the_end(cluster):
    worker = one_host(cluster)
    cluster.launch("/u/exp", HOLDS, reserve=True, band=PriorityBand.BATCH, max_retries_preemption=9)
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
    cluster.launch("/u/exp", resources(1, 1, device=V5P_8), reserve=True)
    cluster.observe("/u/exp/0:0", TaskState.RUNNING)
    cluster.submit("/u/exp/train", USES)
    assert cluster.schedule().assignments == []
    cluster.do(LendCpu(AttemptId("/u/exp/0:0"), True))
    assert cluster.schedule().assignments == [("/u/exp/train/0", worker)]
