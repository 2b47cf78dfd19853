"""Who is served first inside a band, what budgets do, and how long a large request can be passed over."""

import pytest

from iris.core.state.usage import HALF_LIFE_MS, UsageLedger
from iris.domain.entities import UserBudget
from iris.domain.events import BudgetSet
from iris.domain.resources import Device
from iris.domain.states import PriorityBand, TaskState
from iris.sched.reserve import RESERVE_AFTER_MS
from iris.testing.scheduling import resources
from rigging.errors import Denied

HOUR = 3600 * 1000


def users(plan) -> list[str]:
    return [task.split("/")[1] for task, _ in plan.assignments]


class TestLedger:
    def test_use_adds_up_and_is_forgotten_by_halves(self):
        ledger = UsageLedger()
        ledger.shift("ann", 2.0, 0)
        assert ledger.held("ann") == 2.0
        assert ledger.use("ann", HOUR) == pytest.approx(2.0 * HOUR, rel=0.02)
        ledger.shift("ann", -2.0, HOUR)
        used = ledger.use("ann", HOUR)
        assert ledger.use("ann", HOUR + HALF_LIFE_MS) == pytest.approx(used / 2)
        assert (ledger.use("bob", HOUR), ledger.held("bob")) == (0.0, 0.0)

    def test_time_that_goes_back_takes_nothing_away(self):
        ledger = UsageLedger()
        ledger.shift("ann", 1.0, HOUR)
        ledger.shift("ann", 1.0, 0)
        assert ledger.use("ann", 0) == 0.0

    def test_the_view_keeps_it_as_attempts_come_and_go(self, cluster):
        cluster.connect("w", resources(4, 16))
        cluster.submit("/ann/job", resources(3))
        cluster.schedule()
        assert cluster.view.usage.held("ann") == 3.0
        cluster.now_ms += HOUR
        cluster.observe("/ann/job/0:0", TaskState.SUCCEEDED)
        assert cluster.view.usage.held("ann") == 0.0
        assert cluster.view.usage.use("ann", cluster.now_ms) == pytest.approx(3 * HOUR, rel=0.02)


class TestFairness:
    def test_who_has_had_less_comes_first_though_younger(self, cluster):
        cluster.connect("w", resources(1, 16))
        cluster.submit("/ann/first")
        cluster.schedule()
        cluster.now_ms += HOUR
        cluster.observe("/ann/first/0:0", TaskState.SUCCEEDED)
        cluster.submit("/ann/second")
        cluster.submit("/bob/first")
        assert users(cluster.schedule()) == ["bob"]

    def test_a_large_job_does_not_take_all_before_another_user_has_a_turn(self, cluster):
        cluster.connect("w", resources(32, 64))
        cluster.submit("/ann/large", replicas=100)
        cluster.submit("/bob/large", replicas=100)
        served = users(cluster.schedule())
        assert (served.count("ann"), served.count("bob")) == (16, 16)

    def test_use_is_forgotten(self, cluster):
        cluster.connect("w", resources(1, 16))
        cluster.view.usage.restore("ann", 1e9, 0)
        cluster.submit("/ann/job")
        cluster.submit("/bob/job")
        cluster.view.usage.restore("bob", 1e5, cluster.now_ms)
        cluster.now_ms += 20 * HALF_LIFE_MS
        assert users(cluster.schedule()) == ["bob"]

    def test_bands_come_before_fairness(self, cluster):
        cluster.connect("w", resources(1, 16))
        cluster.view.usage.restore("ann", 1e12, 0)
        cluster.submit("/bob/job")
        cluster.submit("/ann/job", band=PriorityBand.PRODUCTION)
        assert users(cluster.schedule()) == ["ann"]


class TestBudgets:
    def test_over_budget_is_served_as_batch(self, cluster):
        cluster.connect("w", resources(4, 16))
        cluster.do(BudgetSet(UserBudget("ann", max_weight=2)))
        cluster.submit("/ann/job", replicas=2)
        cluster.schedule()
        cluster.submit("/ann/more", replicas=2)
        cluster.submit("/zoe/job")
        assert users(cluster.schedule()) == ["zoe", "ann"]

    def test_over_budget_preempts_nobody(self, cluster):
        cluster.connect("w", resources(2, 16))
        cluster.do(BudgetSet(UserBudget("ann", max_weight=1)))
        cluster.submit("/ann/job")
        cluster.submit("/zoe/batch", band=PriorityBand.BATCH)
        cluster.schedule()
        cluster.submit("/ann/more")
        assert cluster.schedule().preemptions == []

    def test_a_band_above_the_users_is_refused(self, cluster):
        cluster.do(BudgetSet(UserBudget("ann", max_band=PriorityBand.INTERACTIVE)))
        message = "user ann may not submit in the production band; the most urgent allowed is interactive"
        with pytest.raises(Denied, match=message):
            cluster.submit("/ann/job", band=PriorityBand.PRODUCTION)
        cluster.submit("/ann/job", band=PriorityBand.BATCH)


class TestReservation:
    def test_small_work_cannot_starve_a_gang_that_has_waited(self, cluster):
        for number in range(4):
            cluster.connect(f"w{number}", resources(2, 16), pool=f"p{number // 2}")
        cluster.submit("/u/small", replicas=1_000)
        cluster.schedule()
        cluster.submit("/u/gang", resources(2), replicas=2, coscheduling_group_by="pool")
        finished = 0
        for _ in range(50):
            plan = cluster.schedule()
            if any(task.startswith("/u/gang") for task, _ in plan.assignments):
                break
            cluster.now_ms += RESERVE_AFTER_MS // 10
            live = [task for task in cluster.view.tasks["/u/small"] if task.state.is_live]
            oldest = min(live, key=lambda task: (task.started_at_ms, task.index))
            cluster.observe(oldest.attempt_id, TaskState.SUCCEEDED)
            finished += 1
        else:
            pytest.fail(f"the gang never ran; {plan.reasons}")
        assert finished < 30

    def test_a_young_gang_keeps_nothing(self, cluster):
        cluster.connect("a", resources(2, 16), pool="p")
        cluster.connect("b", resources(2, 16), pool="p")
        cluster.submit("/u/holds", resources(2))
        cluster.schedule()
        cluster.submit("/u/gang", resources(2), replicas=2, coscheduling_group_by="pool")
        cluster.submit("/u/small")
        assert len(cluster.schedule().assignments) == 1

    def test_an_old_one_keeps_the_best_group_and_says_so(self, cluster):
        for name, pool in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"), ("c1", "c")):
            cluster.connect(name, resources(2, 16), pool=pool)
        for number in range(3):
            cluster.submit(f"/u/holds{number}", resources(2))
        cluster.schedule()  # a1, a2, b1
        cluster.submit("/u/gang", resources(2), replicas=2, coscheduling_group_by="pool")
        cluster.now_ms += RESERVE_AFTER_MS
        cluster.submit("/u/small", resources(1), replicas=4)
        plan = cluster.schedule()
        assert [worker for _, worker in plan.assignments] == ["c1", "c1"]
        assert plan.reasons["/u/gang"].endswith("; pool b is kept free for it")

    def test_a_large_single_task_is_not_starved_either(self, cluster):
        cluster.connect("w1", resources(4, 16))
        cluster.connect("w2", resources(4, 16))
        cluster.submit("/u/small", replicas=7)
        cluster.schedule()
        cluster.submit("/u/large", resources(4))
        cluster.submit("/u/late", replicas=5)
        cluster.now_ms += RESERVE_AFTER_MS
        plan = cluster.schedule()
        assert plan.assignments == [] or all(worker != "w2" for _, worker in plan.assignments)
        assert plan.reasons["/u/large"].startswith("needs 4 cores; worker w2 has 1 of 4 free")
        assert plan.reasons["/u/large"].endswith("; worker w2 is kept free for it")


def test_cpu_work_stays_off_accelerators_until_there_is_no_other_room(cluster):
    cluster.connect("tpu", resources(8, 64, device=Device("tpu", "v5p-8", 4)))
    cluster.connect("cpu", resources(64, 64))
    cluster.submit(replicas=8)
    assert {worker for _, worker in cluster.schedule().assignments} == {"cpu"}
