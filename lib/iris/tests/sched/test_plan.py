"""Where tasks go, in which order, and what is said of those that wait."""

import pytest

from iris.domain.constraints import Constraint, ConstraintOp
from iris.domain.resources import Device
from iris.domain.states import PriorityBand, TaskState
from iris.sched import fit
from iris.sched.plan import plan_round
from iris.testing.scheduling import resources

H100 = Device("gpu", "H100", 4)


def placed(plan) -> list[tuple[str, str]]:
    return [(task.rpartition("/u/")[2], worker) for task, worker in plan.assignments]


class TestOrder:
    def test_band_then_age_then_index(self, cluster):
        cluster.connect("w", resources(5))
        cluster.submit("/u/batch", band=PriorityBand.BATCH)
        cluster.submit("/u/old", replicas=2)
        cluster.submit("/u/young")
        cluster.submit("/u/prod", band=PriorityBand.PRODUCTION)
        cluster.connect("w", resources(4, 16))
        plan = cluster.schedule()
        assert placed(plan) == [("prod/0", "w"), ("old/0", "w"), ("old/1", "w"), ("young/0", "w")]
        assert plan.reasons["/u/batch"].startswith(
            "needs 1 core; worker w has 0 of 4 free; next expected when a task of "
        )

    def test_what_does_not_fit_does_not_hold_up_what_does(self, cluster):
        cluster.connect("w", resources(2, 16))
        cluster.submit("/u/large", resources(3))
        cluster.submit("/u/small", resources(1))
        plan = cluster.schedule()
        assert placed(plan) == [("small/0", "w")]
        assert plan.reasons == {"/u/large": "needs 3 cores; worker w has 1 of 2 free"}

    def test_a_retry_comes_before_later_tasks_of_its_job(self, cluster):
        cluster.connect("w", resources(2, 16))
        cluster.submit(replicas=4, max_retries_failure=1)
        cluster.schedule()
        cluster.observe("/u/job/1:0", TaskState.FAILED)
        assert placed(cluster.schedule()) == [("job/1", "w")]

    def test_the_view_is_not_changed(self, cluster):
        cluster.connect("w", resources(2, 16))
        cluster.submit(replicas=4)
        assert plan_round(cluster.view, 0) == plan_round(cluster.view, 0)

    def test_nothing_to_do(self, cluster):
        plan = plan_round(cluster.view, 0)
        assert (plan.assignments, plan.reasons) == ([], {})


ALL = resources(4, 16, 100, H100)
PARTS = {
    "cpu": (resources(3, 0), "cores"),
    "memory": (resources(0, 12), "memory"),
    "disk": (resources(0, 0, 80), "disk"),
    "accelerators": (resources(0, 0, 0, Device("gpu", "H100", 3)), "H100"),
}


class TestWhatIsTaken:
    @pytest.mark.parametrize(("need", "word"), PARTS.values(), ids=PARTS)
    def test_what_an_attempt_holds_is_not_given_to_another_in_a_later_round(self, cluster, need, word):
        cluster.connect("w", ALL)
        cluster.submit("/u/first", need)
        cluster.submit("/u/second", need)
        assert placed(cluster.schedule()) == [("first/0", "w")]
        plan = cluster.schedule()
        assert plan.assignments == []
        assert word in str(plan.reasons["/u/second"])
        cluster.observe("/u/first/0:0", TaskState.SUCCEEDED)
        assert placed(cluster.schedule()) == [("second/0", "w")]

    @pytest.mark.parametrize(("need", "word"), PARTS.values(), ids=PARTS)
    def test_what_is_left_beside_an_attempt_is_used_to_the_last(self, cluster, need, word):
        cluster.connect("w", ALL)
        cluster.submit("/u/first", need)
        cluster.schedule()
        cluster.submit("/u/rest", ALL.sub(need))
        assert placed(cluster.schedule()) == [("rest/0", "w")]


class TestChoice:
    def test_the_fullest_worker_that_has_room(self, cluster):
        cluster.connect("large", resources(8, 16))
        cluster.connect("small", resources(2, 16))
        cluster.submit("/u/a", resources(2))
        cluster.submit("/u/b", resources(2))
        assert placed(cluster.schedule()) == [("a/0", "small"), ("b/0", "large")]

    def test_plain_tasks_leave_accelerators_alone_while_they_can(self, cluster):
        cluster.connect("gpu", resources(1, 4, device=H100))
        cluster.connect("plain", resources(2, 4))
        cluster.submit(replicas=3)
        assert placed(cluster.schedule()) == [("job/0", "plain"), ("job/1", "plain"), ("job/2", "gpu")]

    def test_hard_constraints_exclude_and_soft_ones_prefer(self, cluster):
        cluster.connect("a", resources(1, 4), zone="a")
        cluster.connect("b", resources(2, 4), zone="b")
        cluster.submit("/u/soft", constraints=(Constraint("zone", ConstraintOp.EQ, ("b",), soft=True),))
        cluster.submit("/u/hard", constraints=(Constraint("zone", ConstraintOp.NE, ("a",)),))
        assert placed(cluster.schedule()) == [("soft/0", "b"), ("hard/0", "b")]

    def test_every_dimension_counts(self, cluster):
        cluster.connect("w", resources(100, 10, 10, Device("gpu", "H100", 10)))
        one_gpu = Device("gpu", "", 1)
        cluster.submit("/u/memory", resources(0, 3), replicas=2)
        cluster.submit("/u/disk", resources(0, 0, 4), replicas=3)
        cluster.submit("/u/gpu", resources(0, 0, 0, one_gpu), replicas=11)
        plan = cluster.schedule()
        assert [sum(task.startswith(name) for task, _ in plan.assignments) for name in ("/u/m", "/u/d", "/u/g")] == [
            2,
            2,
            10,
        ]
        assert plan.reasons == {
            "/u/disk": "needs 4 GiB of disk; worker w has 2 GiB of 10 GiB free"
            "; next expected when a task of /u/disk ends",
            "/u/gpu": "needs 1 x gpu; worker w has 0 of 10 free; next expected when a task of /u/gpu ends",
        }

    def test_tasks_that_ask_for_nothing_run_on_a_full_worker(self, cluster):
        cluster.connect("w", resources(1, 1))
        cluster.submit("/u/full")
        cluster.submit("/u/free", resources(0, 0))
        assert placed(cluster.schedule()) == [("full/0", "w"), ("free/0", "w")]


class TestReasons:
    def reason(self, cluster) -> str:
        (text,) = plan_round(cluster.view, 0).reasons.values()
        return text

    def test_no_worker(self, cluster):
        cluster.submit()
        assert self.reason(cluster) == "no worker is connected"

    def test_the_nearest_worker_and_its_tightest_dimension(self, cluster):
        cluster.connect("far", resources(1, 64))
        cluster.connect("near", resources(6, 4))
        cluster.submit(need=resources(8, 5))
        assert self.reason(cluster) == "needs 8 cores; worker near has 6 of 6 free"

    @pytest.mark.parametrize(
        ("constraints", "reason"),
        [
            ([("zone", ConstraintOp.EQ, "c")], "no worker has zone = c; workers have a, b"),
            ([("rack", ConstraintOp.EQ, "1")], "no worker has rack = 1; none has the attribute 'rack'"),
            (
                [("zone", ConstraintOp.EQ, "a"), ("fast", ConstraintOp.EXISTS, None)],
                "no one worker has all of: zone = a; fast exists",
            ),
        ],
    )
    def test_constraints(self, cluster, constraints, reason):
        cluster.connect("w1", resources(4, 16), zone="a")
        cluster.connect("w2", resources(4, 16), zone="b", fast="1")
        wanted = tuple(Constraint(key, op, (value,) if value else ()) for key, op, value in constraints)
        cluster.submit(constraints=wanted)
        assert self.reason(cluster) == reason

    def test_a_device_that_nobody_has(self, cluster):
        cluster.connect("w", resources(4, 16))
        cluster.submit(need=resources(device=Device("tpu", "v5p-8", 4)))
        assert self.reason(cluster) == "needs 4 x tpu v5p-8; no worker has an accelerator"
        cluster.connect("g", resources(4, 16, device=H100))
        assert self.reason(cluster) == "needs 4 x tpu v5p-8; there are gpu H100"

    def test_a_device_that_is_busy(self, cluster):
        cluster.connect("g", resources(4, 16, device=H100))
        cluster.submit("/u/holds", resources(device=Device("gpu", "H100", 3)))
        cluster.schedule()
        cluster.submit(need=resources(device=Device("gpu", "H100", 2)))
        assert (
            self.reason(cluster)
            == "needs 2 x gpu H100; worker g has 1 of 4 free; next expected when a task of /u/holds ends"
        )

    def test_equal_requests_get_equal_reasons_and_different_ones_their_own(self, cluster):
        cluster.connect("w", resources(1, 1))
        cluster.submit("/u/a", resources(2, 1))
        cluster.submit("/u/b", resources(2, 1))
        cluster.submit("/u/c", resources(1, 2))
        assert cluster.schedule().reasons == {
            "/u/a": "needs 2 cores; worker w has 1 of 1 free",
            "/u/b": "needs 2 cores; worker w has 1 of 1 free",
            "/u/c": "needs 2 GiB of memory; worker w has 1 GiB of 1 GiB free",
        }


class TestGangs:
    @pytest.fixture
    def slices(self, cluster):
        for name, value in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"), ("b3", "b")):
            cluster.connect(name, resources(1, 4), slice=value)
        cluster.connect("alone", resources(8, 32))
        return cluster

    def test_whole_in_one_group_the_one_that_is_left_with_least(self, slices):
        slices.submit(replicas=2, coscheduling_group_by="slice")
        assert placed(slices.schedule()) == [("job/0", "a1"), ("job/1", "a2")]

    def test_or_not_at_all(self, slices):
        slices.submit(replicas=4, coscheduling_group_by="slice")
        plan = slices.schedule()
        assert plan.assignments == []
        assert plan.reasons == {
            "/u/job": "needs room for 4 tasks in one slice; 2 slices match, the best, b, has room for 3"
        }

    def test_two_gangs_of_one_round_do_not_meet(self, slices):
        slices.submit("/u/g1", replicas=3, coscheduling_group_by="slice")
        slices.submit("/u/g2", replicas=2, coscheduling_group_by="slice")
        slices.submit("/u/g3", replicas=2, coscheduling_group_by="slice")
        plan = slices.schedule()
        workers = [worker for _, worker in plan.assignments]
        assert sorted(workers) == ["a1", "a2", "b1", "b2", "b3"]
        assert plan.reasons == {
            "/u/g3": "needs room for 2 tasks in one slice; 2 slices match, the best, b, has room for 0;"
            " next expected when job /u/g1 ends"
        }

    def test_an_attribute_that_nobody_has(self, slices):
        slices.submit(replicas=2, coscheduling_group_by="pod")
        assert slices.schedule().reasons == {
            "/u/job": "no connected worker has the attribute 'pod', by which the gang of 2 is grouped"
        }

    def test_constraints_count_for_gangs(self, slices):
        b_only = (Constraint("slice", ConstraintOp.EQ, ("b",)),)
        slices.submit(replicas=2, coscheduling_group_by="slice", constraints=b_only)
        assert placed(slices.schedule()) == [("job/0", "b1"), ("job/1", "b2")]


def test_five_thousand_pending_that_fit_nowhere_are_looked_at_once(cluster, monkeypatch):
    cluster.connect("w", resources(1, 1))
    cluster.submit(need=resources(2), replicas=5_000)
    asked = 0
    original = fit.Host.fits

    def counted(self, need):
        nonlocal asked
        asked += 1
        return original(self, need)

    monkeypatch.setattr(fit.Host, "fits", counted)
    plan = plan_round(cluster.view, 0)
    assert plan.reasons == {"/u/job": "needs 2 cores; worker w has 1 of 1 free"}
    assert asked <= 1


def test_a_child_that_waits_for_what_its_own_parent_holds_is_told_so(cluster):
    """A parent that holds the accelerators its children wait for is a deadlock; it is seen in the child's reason."""
    cluster.connect("g", resources(4, 16, device=H100))
    cluster.submit("/u/parent", resources(device=Device("gpu", "H100", 4)))
    cluster.schedule()
    cluster.submit("/u/parent/child", resources(device=Device("gpu", "H100", 1)))
    reason = cluster.schedule().reasons["/u/parent/child"]
    assert reason == "needs 1 x gpu H100; worker g has 0 of 4 free; next expected when a task of /u/parent ends"
