"""What is kept free for work that has waited long: which hosts, for how many, and what is said of it."""

import pytest

from iris.domain.constraints import Constraint, ConstraintOp
from iris.domain.events import WorkerCordoned
from iris.domain.ids import WorkerId
from iris.domain.states import PriorityBand, TaskState
from iris.sched.plan import plan_round
from iris.sched.reserve import MAX_RESERVED, RESERVE_AFTER_MS
from support.iris.scheduling import InMemoryCluster, resources


def wait(cluster: InMemoryCluster, ms: int = RESERVE_AFTER_MS) -> None:
    cluster.now_ms += ms


def placed(plan) -> list[str]:
    return [str(task) for task, _ in plan.assignments]


class TestOneTask:
    @pytest.fixture
    def busy(self, cluster):
        """Two workers of 4 cores, of which 1 and 3 are in use, and a job that needs all of one."""
        cluster.connect("w", resources(4, 16))
        cluster.connect("v", resources(4, 16))
        cluster.submit("/u/short", resources(3))
        cluster.launch("/u/long", resources(3))
        cluster.submit("/u/fill", resources(1))
        cluster.schedule()
        cluster.observe("/u/short/0:0", TaskState.SUCCEEDED)
        cluster.submit("/u/large", resources(4))
        return cluster

    def test_the_host_that_lacks_least_is_kept_once_it_has_waited_five_minutes(self, busy):
        submitted = busy.job("/u/large").submitted_at_ms
        why = "needs 4 cores; worker w has 3 of 4 free; next expected when a task of /u/fill ends"
        early = plan_round(busy.view, submitted + RESERVE_AFTER_MS - 1)
        assert early.reasons["/u/large"] == why
        due = plan_round(busy.view, submitted + RESERVE_AFTER_MS)
        assert due.reasons["/u/large"] == f"{why}; worker w is kept free for it"
        wait(busy)
        busy.submit("/u/small", resources(1), replicas=2)
        busy.submit("/u/other", resources(4))
        plan = busy.schedule()
        assert plan.assignments == [("/u/small/0", "v")], "nothing new goes to the kept host"
        full = "worker v has 0 of 4 free; next expected when a task of /u/long ends"
        kept = "worker w has room, but is kept free for /u/large"
        assert {name: plan.reasons[name] for name in ("/u/small", "/u/other")} == {
            "/u/small": f"needs 1 core; {full}; {kept}",
            "/u/other": f"needs 4 cores; {full}",
        }
        busy.do(WorkerCordoned(WorkerId("v"), "bad fan"))
        reasons = busy.schedule().reasons
        assert (reasons["/u/small"], reasons["/u/other"]) == (
            kept,
            "needs 4 cores; worker w has 3 of 4 free; it is kept free for /u/large;"
            " suitable, but out of use: v (cordoned: bad fan)",
        )

    @pytest.mark.parametrize(("need", "replicas"), [(resources(3), 2), (resources(5), 1)])
    def test_a_job_of_which_something_runs_or_that_no_host_could_ever_hold_keeps_nothing(self, cluster, need, replicas):
        cluster.connect("w", resources(4, 16))
        cluster.launch("/u/large", need, replicas=replicas)
        cluster.submit("/u/small", resources(1))
        wait(cluster)
        plan = cluster.schedule()
        assert placed(plan) == ["/u/small/0"]
        assert "is kept free" not in plan.reasons["/u/large"]

    def test_each_gets_a_host_of_its_own_and_no_more_than_a_few_in_each_band(self, cluster):
        for number in range(MAX_RESERVED + 2):
            cluster.connect(f"w{number}", resources(2, 16), number=str(number))
            only = Constraint("number", ConstraintOp.EQ, (str(number),))
            cluster.submit(f"/u/fill{number}", constraints=(only,))
        cluster.schedule()
        for number in range(MAX_RESERVED + 2):
            cluster.submit(f"/u/large{number}", resources(2))
            cluster.submit(f"/u/batch{number}", resources(2), band=PriorityBand.BATCH)
        wait(cluster)
        reasons = plan_round(cluster.view, cluster.now_ms).reasons
        kept = {job: text.rpartition("; ")[2] for job, text in reasons.items() if text.endswith("kept free for it")}
        assert kept == {
            **{f"/u/large{number}": f"worker w{number} is kept free for it" for number in range(MAX_RESERVED)},
            **{f"/u/batch{number}": f"worker w{number + 4} is kept free for it" for number in range(2)},
        }


class TestGangs:
    @pytest.fixture
    def pools(self, cluster):
        """Pools a (2 hosts) and b (3 hosts) of one core each."""
        for name in ("a0", "a1", "b0", "b1", "b2"):
            cluster.connect(name, resources(1, 4), pool=name[0])
        return cluster

    def fill(self, cluster: InMemoryCluster, *workers: str) -> None:
        """Run a task on each of these, the first free of a pool."""
        for number, worker in enumerate(workers):
            pool = Constraint("pool", ConstraintOp.EQ, (worker[0],))
            cluster.submit(f"/u/fill{number}", constraints=(pool,))
        cluster.schedule()

    def test_the_group_with_most_room_is_kept_whole_and_named(self, pools):
        self.fill(pools, "a0", "a1", "b0")
        pools.submit("/u/gang", replicas=3, coscheduling_group_by="pool")
        wait(pools)
        pools.submit("/u/small", replicas=3)
        plan = pools.schedule()
        assert placed(plan) == []
        reason = plan.reasons["/u/gang"]
        assert "the best, b, has room for 2;" in reason, "as it is before anything is kept"
        assert reason.endswith("; pool b is kept free for it")

    @pytest.mark.parametrize("has_small", [False, True])
    def test_a_group_that_could_never_hold_it_is_not_kept(self, pools, has_small):
        if has_small:  # hosts that are too small for a member do not count
            pools.connect("b3", resources(0.5, 4), pool="b")
        pools.submit("/u/gang", replicas=4, coscheduling_group_by="pool")
        wait(pools)
        pools.submit("/u/small", replicas=5)
        plan = pools.schedule()
        assert len(placed(plan)) == 5
        assert "is kept free for it" not in plan.reasons["/u/gang"]

    def test_few_hosts_are_kept_when_each_could_hold_several_members(self, cluster):
        for name in ("c0", "c1"):
            cluster.connect(name, resources(4, 16), pool="c")
        cluster.launch("/u/fill")
        for size, is_kept in ((8, True), (9, False)):
            name = f"/u/gang{size}"
            cluster.submit(name, replicas=size, coscheduling_group_by="pool")
            wait(cluster)
            assert ("is kept free for it" in plan_round(cluster.view, cluster.now_ms).reasons[name]) == is_kept
            cluster.stop(name)

    def test_what_one_gang_keeps_another_does_not(self, pools):
        self.fill(pools, "a0", "b0", "b1")
        for name in ("/u/first", "/u/second", "/u/third"):
            pools.submit(name, replicas=2, coscheduling_group_by="pool")
        wait(pools)
        reasons = plan_round(pools.view, pools.now_ms).reasons
        assert [reasons[name].rpartition("; ")[2] for name in ("/u/first", "/u/second")] == [
            "pool a is kept free for it",
            "pool b is kept free for it",
        ]
        assert "is kept free for it" not in reasons["/u/third"]

    def test_a_gang_is_kept_for_in_its_band(self, pools):
        self.fill(pools, "a0", "b0", "b1")
        pools.submit("/u/gang", replicas=2, coscheduling_group_by="pool", band=PriorityBand.BATCH)
        wait(pools)
        assert "pool a is kept free for it" in pools.schedule().reasons["/u/gang"]
