"""What is said of work that waits: whose end it waits for, and which hosts are out of use."""

import pytest

from iris.domain.constraints import Constraint, ConstraintOp
from iris.domain.events import WorkerCordoned, WorkerDisconnected, WorkerLate
from iris.domain.ids import WorkerId
from iris.domain.resources import Device
from iris.sched.explain import (
    Offer,
    amount_of,
    amount_text,
    explain_constraints,
    explain_device,
    explain_shortfall,
)
from iris.testing.scheduling import InMemoryCluster, resources

GPU = Device("gpu", "H100", 4)


def reason(cluster: InMemoryCluster, job: str = "/u/job") -> str:
    return cluster.schedule().reasons[job]


def test_the_job_that_holds_most_of_what_is_scarce_is_named(cluster):
    cluster.connect("w", resources(8, 64))
    cluster.submit("/u/memory", resources(1, 60))
    cluster.submit("/u/cpu", resources(2, 1), replicas=2)
    cluster.submit("/u/single", resources(3, 1))
    cluster.schedule()
    cluster.submit(need=resources(4, 1))
    assert reason(cluster) == "needs 4 cores; worker w has 0 of 8 free; next expected when a task of /u/cpu ends"


def test_the_nearest_worker_is_named_and_not_one_that_is_too_small_when_empty(cluster):
    cluster.connect("small", resources(2, 16))
    cluster.connect("near", resources(4, 16))
    cluster.connect("far", resources(4, 16))
    for number, cpu in enumerate((2, 3, 4)):
        cluster.submit(f"/u/fill{number}", resources(cpu))
    cluster.schedule()
    holder = next(job for job in ("fill0", "fill1", "fill2") if cluster.task(f"/u/{job}/0").worker_id == "near")
    cluster.submit(need=resources(3))
    assert reason(cluster) == (
        f"needs 3 cores; worker near has 1 of 4 free; next expected when a task of /u/{holder} ends"
    )


class TestWorkersOutOfUse:
    def test_never_any(self, cluster):
        cluster.submit()
        assert reason(cluster) == "no worker is connected"

    def test_all_gone(self, cluster):
        for name in "ab":
            cluster.connect(name, resources(1))
            cluster.do(WorkerDisconnected(WorkerId(name), "a"))
        cluster.submit()
        assert reason(cluster) == "no worker is connected (2 known)"

    def test_a_cordoned_one_that_alone_would_do_is_named(self, cluster):
        cluster.connect("plain", resources(8))
        cluster.connect("zoned", resources(8), zone="a")
        cluster.connect("other", resources(8))
        cluster.do(WorkerCordoned(WorkerId("zoned"), "bad fan"))
        cluster.do(WorkerCordoned(WorkerId("other"), "worse fan"))
        cluster.submit(constraints=(Constraint("zone", ConstraintOp.EQ, ("a",)),))
        assert reason(cluster) == (
            "no worker has zone = a; none has the attribute 'zone'; cordoned, but would do: zoned: bad fan"
        )

    def test_cordoned_ones_come_first_and_five_are_named(self, cluster):
        for number in range(7):
            cluster.connect(f"w{number}", resources(1))
            if number:
                cluster.do(WorkerCordoned(WorkerId(f"w{number}"), f"fan {number}"))
        cluster.do(WorkerLate(WorkerId("w0"), 10_000))
        cluster.submit()
        assert reason(cluster) == (
            "no worker takes work; 6 of 7 known are cordoned"
            " (w1: fan 1, w2: fan 2, w3: fan 3, w4: fan 4, w5: fan 5 and 1 more)"
        )

    def test_silent_ones_are_named(self, cluster):
        for name in "ba":
            cluster.connect(name, resources(1))
            cluster.do(WorkerLate(WorkerId(name), 10_000))
        cluster.connect("gone", resources(1))
        cluster.do(WorkerDisconnected(WorkerId("gone"), "a"))
        cluster.submit()
        assert reason(cluster) == "no worker takes work; not heard for two heartbeats: a, b"

    def test_a_gang_without_any_worker(self, cluster):
        cluster.submit(replicas=2, coscheduling_group_by="pool")
        assert reason(cluster) == "no worker is connected"


class TestGangs:
    @pytest.fixture
    def pools(self, cluster):
        for name in ("a0", "a1"):
            cluster.connect(name, resources(2, 8), pool="a")
        return cluster

    def gang(self, cluster: InMemoryCluster, **fields: object) -> str:
        cluster.submit(replicas=2, coscheduling_group_by="pool", **fields)
        return reason(cluster)

    def test_constraints_that_no_grouped_worker_meets_are_told(self, pools):
        pools.connect("alone", resources(2, 8), zone="x")
        where = Constraint("zone", ConstraintOp.EQ, ("x",))
        assert self.gang(pools, constraints=(where,)) == "no worker has zone = x; none has the attribute 'zone'"

    def test_a_device_that_no_grouped_worker_has_is_told(self, pools):
        pools.connect("alone", resources(2, 8, device=GPU))
        need = resources(1, device=Device("gpu", "H100", 1))
        assert self.gang(pools, need=need) == "needs 1 x gpu H100; no worker has an accelerator"

    def test_the_job_that_is_on_most_of_the_hosts_in_the_way_is_named(self, pools):
        pools.submit("/u/one", resources(1))
        pools.schedule()
        pools.submit("/u/both", resources(1), replicas=2)
        pools.schedule()
        found = self.gang(pools, need=resources(2))
        assert found == (
            "needs room for 2 tasks in one pool; 1 pool matches, the best, a, has room for 0;"
            " next expected when job /u/both ends"
        )

    def test_the_group_with_most_room_is_named_and_how_many_there_are(self, pools):
        pools.connect("b0", resources(2, 8), pool="b")
        pools.connect("c0", resources(4, 8), pool="c")
        assert self.gang(pools, need=resources(3)) == (
            "needs room for 2 tasks in one pool; 3 pools match, the best, c, has room for 1"
        )

    def test_whole_slices_of_a_known_type_are_counted(self, cluster):
        device = Device("tpu", "v4-16", 4)
        for name in ("s-0", "s-1"):
            cluster.connect(name, resources(4, 8, device=device), **{"tpu-name": "s"})
        need = resources(1, device=device)
        cluster.submit(need=need, replicas=4, coscheduling_group_by="tpu-name")
        found = reason(cluster)
        assert found == "needs 2 whole v4-16 slices of 2 hosts each (1 of them free now); there are 1"


class TestSentences:
    @pytest.mark.parametrize(
        ("dimension", "amount", "text"),
        [("cpu", 2500, "2.5"), ("memory", 3 << 30, "3 GiB"), ("disk", 5 << 30, "5 GiB"), ("device", 4, "4")],
    )
    def test_amounts_of_each_dimension(self, dimension: str, amount: int, text: str):
        have = resources(2.5, 3, 5, GPU)
        assert (amount_of(dimension, have), amount_text(dimension, have)) == (amount, text)

    def test_no_accelerator_is_none_of_it(self):
        assert amount_of("device", resources(1)) == 0

    def test_the_tightest_shortfall_of_the_nearest_worker(self):
        def offer(name: str, cpu: float, memory: float) -> Offer:
            return Offer(WorkerId(name), resources(8, 8), resources(cpu, memory), {})

        found = explain_shortfall(resources(4, 4), [offer("a", 1, 4), offer("b", 4, 3), offer("c", 3, 1)])
        assert found == "needs 4 GiB of memory; worker b has 3 GiB of 8 GiB free"
        assert explain_shortfall(resources(4, 4), [offer("a", 4, 4)]) == "waits for the next round"

    def test_devices_that_there_are_are_told_once_each(self):
        need = resources(device=Device("gpu", "A100", 0))
        have = [resources(device=device) for device in (GPU, Device("gpu", "H100", 2), Device("tpu", "v4-8", 4))]
        assert explain_device(need, [*have, resources(1)]) == "needs 1 x gpu A100; there are gpu H100, tpu v4-8"
        assert explain_device(resources(1), []) == "needs no accelerator; no worker has an accelerator"
        assert explain_device(resources(1), [resources(1)]) is None

    def test_soft_constraints_rule_nothing_out(self):
        soft = Constraint("zone", ConstraintOp.EQ, ("x",), soft=True)
        hard = Constraint("zone", ConstraintOp.EQ, ("b",))
        assert explain_constraints((soft,), [{"zone": "a"}]) is None
        assert explain_constraints((soft, hard), [{"zone": "a"}]) == "no worker has zone = b; workers have a"
