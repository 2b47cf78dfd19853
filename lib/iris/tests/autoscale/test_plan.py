"""Which slices are created and released: decisions over demands, groups and slices."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris.autoscale.closures import Closure, after_answer
from iris.autoscale.lives import Life
from iris.autoscale.model import Answer, Outcome, SliceRecord, SliceState, SliceUse
from iris.autoscale.plan import Plan, plan
from iris.autoscale.planning.demand import Demand
from iris.autoscale.rules import AutoscaleRules
from iris.domain.constraints import Constraint, ConstraintOp, evaluate
from iris.domain.ids import JobId
from iris.domain.resources import Device, Resources
from iris.domain.scale_groups import CapacityType, ManualTemplate, ScaleGroup
from support.iris.scheduling import resources

NOW = 10_000_000
V4_8, V4_16 = Device("tpu", "v4-8", 4), Device("tpu", "v4-16", 4)
CPU = ScaleGroup("cpu", resources(8, 32), max_slices=3, region="us-central1")
FAR = ScaleGroup("far", resources(8, 32), max_slices=3, region="europe-west4")
ONE = ScaleGroup("one", resources(240, 400, device=V4_8), max_slices=2, region="us-central2")
TWO = ScaleGroup(
    "two", resources(240, 400, device=V4_16), hosts_per_slice=2, max_slices=3, region="us-central2", zone="a"
)
TWO_B = replace(TWO, name="two-b", zone="b", priority=200)
GROUPS = (TWO, ONE, CPU, FAR, TWO_B)
EUROPE = (Constraint("region", ConstraintOp.EQ, ("europe-west4",)),)


def tasks(count=1, need=None, **fields):
    return Demand(need or resources(1), fields.pop("constraints", ()), count, jobs=(JobId("/u/j"),), **fields)


def gangs(count=1, slices=1, **fields):
    need = resources(8, 16, device=V4_16)
    constraints = fields.pop("constraints", ())
    return Demand(need, constraints, 2 * count * slices, 2, slices, "tpu-name", (JobId("/u/g"),), **fields)


class Cluster:
    """Slices, and what is known of them."""

    def __init__(self, groups=GROUPS, **rules):
        self.groups, self.rules, self.now = groups, AutoscaleRules(**rules), NOW
        self.slices: dict[str, SliceRecord] = {}
        self.use: dict[str, SliceUse] = {}
        self.closures: dict[str, Closure] = {}
        self.lives = ()
        self.creates: list[int] = []

    def add(self, group, count=1, state=SliceState.JOINED, use=None, age_s=100, **fields):
        for _ in range(count):
            name = f"{group.name}-{len(self.slices)}"
            at = self.now - round(age_s * 1000)
            joined = {"joined_ms": at, "used_ms": at} if state is SliceState.JOINED else {}
            self.slices[name] = replace(SliceRecord(name, group.name, state, at, at, **joined), **fields)
            if state is SliceState.JOINED:
                self.use[name] = use or SliceUse(group.hosts_per_slice)
            elif use is not None:
                self.use[name] = use
        return self

    def look(self, *demands) -> Plan:
        return plan(
            self.now, demands, self.groups, self.slices, self.use, self.closures, self.lives, self.rules, self.creates
        )

    def carry_out(self, made: Plan) -> None:
        """What is to be created is requested, what is to be released leaves."""
        groups = {group.name: group for group in self.groups}
        for name in made.create:
            self.add(groups[name], state=SliceState.REQUESTED, age_s=0)
            self.creates.append(self.now)
        for name in made.release:
            self.slices[name] = replace(self.slices[name], state=SliceState.LEAVING)

    def close(self, group, outcome, words="no"):
        self.closures = dict(after_answer(self.closures, group, Answer(outcome, words), self.now, 0))
        return self


@pytest.mark.parametrize(
    ("demands", "created"),
    [
        ((), []),
        ((tasks(),), ["cpu"]),  # the plainest that will do
        ((tasks(constraints=EUROPE),), ["far"]),
        ((tasks(constraints=(replace(EUROPE[0], soft=True),)),), ["far"]),
        ((tasks(region="europe-west4"),), ["far"]),
        ((tasks(need=Resources(10**9)),), []),
        ((tasks(need=resources(1, device=Device("gpu", "H100", 1))),), []),
        ((tasks(17),), ["cpu"] * 3),  # counted in what fits, not in entries
        ((tasks(25),), ["cpu"] * 3 + ["far"]),
        ((tasks(49),), ["cpu"] * 3 + ["far"] * 3),  # no TPU for what needs none
        ((tasks(constraints=(replace(EUROPE[0], values=("us-central2",)),)),), ["one"]),  # unless nothing else is there
        ((gangs(),), ["two"]),
        ((gangs(4),), ["two"] * 3 + ["two-b"]),
        ((gangs(1, slices=6),), ["two"] * 3 + ["two-b"] * 3),
        ((gangs(1, slices=7), gangs(1)), ["two"]),  # all of its slices or none
        ((tasks(4), tasks(4)), ["cpu"]),
    ],
)
def test_slices_are_created_for_what_fits_on_them(demands, created):
    cluster = Cluster()
    made = cluster.look(*demands)
    assert list(made.create) == created
    missing = sum(status.demand for status in made.groups.values())
    assert missing == len(created) or (missing > len(created) and made.reasons), "what is not created is told"
    cluster.carry_out(made)
    assert cluster.look(*demands).create == (), "it is on its way"


NEED = st.sampled_from([resources(1), resources(3, 8), resources(8), resources(4, device=V4_8), resources(90, 200)])
PLACE = st.sampled_from([(), EUROPE, (replace(EUROPE[0], values=("us-central2",)),), (replace(EUROPE[0], soft=True),)])
SINGLE = st.builds(lambda n, need, place: tasks(n, need, constraints=place), st.integers(1, 30), NEED, PLACE)
GANG = st.builds(lambda n, slices: gangs(n, slices), st.integers(1, 3), st.integers(1, 3))
DEMANDS = st.lists(SINGLE | GANG, max_size=6).map(
    lambda found: [replace(demand, jobs=(JobId(f"/u/{number}"),)) for number, demand in enumerate(found)]
)


@st.composite
def clusters(draw):
    groups = []
    for group in GROUPS:
        most = draw(st.integers(0, 5))
        least = draw(st.integers(0, most))
        groups.append(
            replace(
                group, max_slices=most, min_slices=least, buffer_slices=draw(st.integers(0, 2)), quota_pool="p",
                priority=draw(st.integers(1, 2)), allocation_tier=draw(st.integers(0, 2)),
            )
        )  # fmt: skip
    cluster = Cluster(
        tuple(groups), max_hosts=draw(st.sampled_from([0, 0, 4, 9])), creates_per_minute=draw(st.integers(1, 20))
    )
    for _ in range(draw(st.integers(0, 10))):
        group = draw(st.sampled_from(groups))
        if sum(record.group == group.name for record in cluster.slices.values()) == group.max_slices:
            continue
        size = group.hosts_per_slice
        state = draw(st.sampled_from([*SliceState][:5]))
        joined = size if state is SliceState.JOINED else draw(st.integers(0, size))
        use = SliceUse(joined, draw(st.integers(0, joined)), is_needed=draw(st.booleans()))
        if draw(st.integers(0, 9)) == 0:
            use = replace(use, lost=(0,))
        cluster.add(group, state=state, use=use, age_s=draw(st.sampled_from([10, 400, 1000])))
    for _ in range(draw(st.integers(0, 3))):
        outcome = draw(st.sampled_from([outcome for outcome in Outcome if outcome is not Outcome.DONE]))
        cluster.close(draw(st.sampled_from(groups)), outcome)
    cluster.now += draw(st.sampled_from([0, 0, 61_000]))
    cluster.lives = tuple(Life(draw(st.sampled_from(groups)).name, NOW, 0) for _ in range(draw(st.integers(0, 5))))
    return cluster


@settings(max_examples=300, deadline=None)
@given(clusters(), DEMANDS)
def test_whatever_waits_limits_hold_and_every_demand_is_served_or_told_why_not(cluster, demands):
    made = cluster.look(*demands)
    before, groups = dict(cluster.slices), {group.name: group for group in cluster.groups}
    assert len(made.create) <= cluster.rules.creates_per_minute
    for name in made.create:
        assert not made.groups[name].outcome, "a closed group is not chosen"
    cluster.carry_out(made)
    again = cluster.look(*demands)
    assert again.create == (), "what is on its way counts"
    for group in cluster.groups:
        there = [record for record in cluster.slices.values() if record.group == group.name]
        assert len(there) <= group.max_slices
        idle = [name for name in made.release if before[name].group == group.name and "unused" in made.release[name]]
        if idle:
            assert all(before[name].state is SliceState.JOINED for name in idle)
            assert not any(cluster.use[name].busy or cluster.use[name].is_needed for name in idle)
            kept = [record.name for record in there if record.state is not SliceState.LEAVING]
            assert len(kept) >= group.min_slices
            unused = [name for name in kept if name in cluster.use and not cluster.use[name].busy]
            assert len(unused) >= group.buffer_slices
    hosts = sum(groups[record.group].hosts_per_slice for record in cluster.slices.values())
    assert not cluster.rules.max_hosts or not made.create or hosts <= cluster.rules.max_hosts
    for demand in demands:
        reason = made.reasons.get(demand.jobs[0], "")
        able = [
            group
            for group in cluster.groups
            if demand.need.fits(group.host) and evaluate(demand.constraints, group.host_attributes)
        ]
        has_room = any(before[name].state is SliceState.JOINED for name in before)
        assert reason or has_room
        assert able or "no scale group" in reason


IDLE, BUSY = SliceUse(2), SliceUse(2, busy=1)
RESERVED = replace(TWO, capacity_type=CapacityType.RESERVED)


def released(cluster, *demands):
    return dict(cluster.look(*demands).release)


@pytest.mark.parametrize(
    ("group", "state", "use", "fields", "reason"),
    [
        (TWO, SliceState.JOINED, IDLE, {}, "unused for 400 s"),
        (TWO, SliceState.JOINED, IDLE, {"used_ms": NOW - 299_000}, None),
        (TWO, SliceState.JOINED, BUSY, {}, None),
        (TWO, SliceState.JOINED, SliceUse(2, is_needed=True), {}, None),
        (TWO, SliceState.JOINED, SliceUse(1), {}, None),  # a host is silent: what runs there is not known
        (TWO, SliceState.JOINED, IDLE, {"asked_by": "ann"}, None),
        (TWO, SliceState.JOINED, SliceUse(2, 1, lost=(1,)), {}, "host 1 of 2 lost"),
        (TWO, SliceState.BOOTING, SliceUse(1, lost=(0, 1)), {}, "hosts 0, 1 of 2 lost"),
        (TWO, SliceState.JOINED, SliceUse(2, 2, broken="PREEMPTED"), {}, "PREEMPTED"),
        (TWO, SliceState.JOINED, SliceUse(2, broken="PREEMPTED"), {"asked_by": "ann"}, "PREEMPTED"),
        (FAR, SliceState.JOINED, SliceUse(1), {"asked_by": "ann"}, None),
        (TWO, SliceState.BOOTING, None, {}, None),  # unused, but it boots
        (TWO, SliceState.BOOTING, None, {"created_ms": NOW - 900_001}, "has not joined in 900 s (boot deadline)"),
        (RESERVED, SliceState.BOOTING, None, {"created_ms": 1}, None),  # it queues
        (RESERVED, SliceState.BOOTING, None, {"ready_ms": NOW - 900_001}, "has not joined in 900 s (boot deadline)"),
        (TWO, SliceState.LEAVING, SliceUse(2, lost=(0,)), {}, None),
        (FAR, SliceState.JOINED, SliceUse(1), {}, "scale group far is no longer in the cluster file"),
        (FAR, SliceState.JOINED, SliceUse(1, 1), {}, None),
    ],
)
def test_a_slice_is_released_when_it_serves_no_more(group, state, use, fields, reason):
    cluster = Cluster((RESERVED if group is RESERVED else TWO,))
    cluster.add(group, 1, state, use, 400, **fields)
    assert [*released(cluster).values()] == ([] if reason is None else [reason])


def test_a_lost_slice_is_replaced_at_once_while_the_group_has_room():
    cluster = Cluster().add(TWO, use=SliceUse(2, 0, lost=(0,)), age_s=10)
    made = cluster.look(gangs())
    assert ([*made.release], made.create) == (["two-0"], ("two",))
    cluster = Cluster().add(TWO, state=SliceState.LEAVING).add(TWO, use=SliceUse(2, 0, lost=(0,)), age_s=10)
    assert [*released(cluster)] == ["two-1"]
    cluster = Cluster((replace(TWO, max_slices=1),)).add(TWO, use=SliceUse(2, 0, lost=(0,)), age_s=10)
    made = cluster.look(gangs())
    assert (made.create, made.reasons["/u/g"]) == ((), "two has 1 of at most 1 slices")


def test_idle_slices_go_together_but_the_minimum_the_buffer_and_what_waits_keep_theirs():
    group = replace(TWO, max_slices=100, min_slices=5, buffer_slices=2)
    cluster = Cluster((group,)).add(group, 67, use=IDLE, age_s=400)
    assert len(released(cluster)) == 62
    assert len(released(cluster, gangs(20))) == 67 - 22
    # Tasks that wait, like gangs, keep what they may get soon.
    assert len(released(cluster, tasks(3, resources(200, device=V4_16)))) == 67 - 5
    assert len(released(cluster, tasks(9, resources(200, device=V4_16)))) == 67 - 7
    cluster.add(group, 10, use=BUSY)
    assert len(released(cluster)) == 65
    cluster.groups = (replace(group, buffer_slices=80, max_slices=90),)
    made = cluster.look()
    assert (made.release, made.create) == ({}, ("two",) * 13)


def test_slices_are_created_for_the_minimum_and_the_buffer_beyond_demand():
    cluster = Cluster((replace(CPU, min_slices=1, buffer_slices=1, max_slices=9),))
    assert cluster.look().create == ("cpu",)
    assert cluster.look(tasks(8)).create == ("cpu", "cpu")
    cluster.carry_out(cluster.look())
    assert cluster.look(tasks(1)).create == ("cpu",)
    cluster.use["cpu-0"] = SliceUse(is_needed=True)
    assert cluster.look().create == ("cpu",)


def test_the_minimum_is_kept_beside_the_slices_of_users():
    cluster = Cluster((replace(CPU, min_slices=1),)).add(CPU, asked_by="ann", age_s=900).add(CPU, age_s=400)
    assert (cluster.look().create, cluster.look().release) == ((), {})
    del cluster.slices["cpu-1"]
    assert cluster.look().create == ("cpu",)


def test_only_free_hosts_count_and_gangs_need_whole_slices():
    four = replace(CPU, hosts_per_slice=4, max_slices=9)
    cluster = Cluster((four, TWO)).add(four, use=SliceUse(4, busy=1, closed=1))
    assert cluster.look(tasks(16)).create == ()
    made = cluster.look(tasks(17))
    assert (made.create, made.groups["cpu"].demand) == (("cpu",), 1)
    assert cluster.add(TWO, use=BUSY).look(gangs()).create == ("two",)
    # Of each host as many tasks as fit, and the next demand what is left.
    assert cluster.look(tasks(1, resources(5)), tasks(11)).create == ()
    assert cluster.look(tasks(1, resources(5)), tasks(12)).create == ("cpu",)


def test_a_buffer_that_a_gang_waits_for_is_the_buffer():
    cluster = Cluster((replace(TWO, max_slices=5, buffer_slices=1), replace(TWO_B, max_slices=1)))
    cluster.close(TWO_B, Outcome.STOCK_OUT).add(TWO, 2, SliceState.WANTED)
    cluster.use["two-0"] = SliceUse(lost=(0,))
    cluster.carry_out(cluster.look(gangs(1, slices=2), gangs(1, slices=3)))
    assert cluster.look(gangs(1, slices=2), gangs(1, slices=3)).create == ()


# What was seen on real clusters: FIELD_NOTES, "Autoscaling".


def test_a_stock_out_sends_the_demand_to_the_next_zone_and_closes_no_other_group():
    cluster = Cluster().close(TWO, Outcome.STOCK_OUT, "There is no more capacity in the zone")
    made = cluster.look(gangs(2), tasks())
    assert made.create == ("two-b", "two-b", "cpu")
    assert made.groups["two"].outcome == "stock-out: There is no more capacity in the zone"
    assert made.groups["two"].next_try_ms == cluster.closures["group two"].until_ms
    cluster.now += 15 * 60_000
    cluster.add(TWO, state=SliceState.FAILED)
    made = cluster.look(gangs(9))
    assert made.create == ("two",) + ("two-b",) * 3, "one slice tries whether it is over"
    assert "two is tried with one slice (stock-out: There is no more" in made.reasons["/u/g"]
    assert (made.groups["two"].failed, made.groups["two"].outcome) == (1, "")


def test_a_full_quota_closes_the_tiers_above_and_idle_slices_of_its_pool_go_sooner():
    groups = [
        replace(TWO, quota_pool="p", allocation_tier=tier, name=f"t{tier}", priority=9 - tier) for tier in range(3)
    ]
    beside = replace(ONE, quota_pool="p")
    cluster = Cluster((*groups, beside)).close(groups[1], Outcome.QUOTA)
    cluster.add(beside, age_s=61)
    assert cluster.look(gangs()).create == ("t0",)
    assert released(cluster, gangs(3)) == {}
    assert released(cluster, gangs(4)) == {"one-0": "unused for 61 s"}


def test_one_preemption_arms_nothing_but_many_short_lives_do():
    cluster = Cluster((TWO, TWO_B))
    cluster.lives = (Life("two", NOW - 1000, 60_000),)
    assert cluster.look(gangs(2)).create == ("two", "two")
    cluster.lives *= 3
    assert cluster.look(gangs(2)).create == ("two-b", "two-b")
    assert cluster.look(gangs(4)).create == ("two-b",) * 3, "two waits for a minute"
    cluster.now += 60_000
    assert cluster.look(gangs(5)).create == ("two-b",) * 3 + ("two",)


def test_a_full_group_with_slices_that_boot_keeps_its_demand():
    cluster = Cluster().add(TWO, 3, SliceState.BOOTING, age_s=10)
    made = cluster.look(gangs(3))
    assert made.create == ()
    assert made.reasons["/u/g"] == "slices two-0, two-1, two-2 boot"
    cluster.close(TWO, Outcome.STOCK_OUT)
    assert cluster.look(gangs(3)).create == ()
    # A slice that some hosts have joined is on its way for a gang, whatever runs there already.
    cluster.use["two-0"] = SliceUse(1, 1)
    assert cluster.look(gangs(3)).create == ()


def test_what_was_not_requested_when_its_group_closed_goes_elsewhere():
    cluster = Cluster().add(TWO, 1, SliceState.WANTED, age_s=1).close(TWO, Outcome.QUOTA)
    made = cluster.look(gangs())
    assert made.release == {"two-0": "was not requested yet, and its group is closed (quota: no)"}
    assert made.create == ("two-b",)
    cluster.closures.clear()
    assert cluster.close(TWO, Outcome.RATE).look(gangs()).create == ()


@pytest.mark.parametrize(
    ("demand", "text"),
    [
        (tasks(constraints=(Constraint("zone", ConstraintOp.EQ, ("c",)),)), "no scale group serves it: no worker"),
        (tasks(need=resources(1, device=Device("gpu", "H100", 8))), "no scale group serves it: needs 8 x gpu H100"),
        (tasks(need=resources(300)), "no scale group serves it: it needs 300 cores; a host of two has 240"),
        (replace(gangs(), gang_size=3, tasks=3), "no scale group serves it: none has room for 3 tasks in one tpu-name"),
        (gangs(3), "two has 2 of at most 2 slices; two-b is closed (config: no), next try when the cluster file "),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_told_why(demand, text):
    cluster = Cluster((replace(TWO, max_slices=2), TWO_B, ONE)).close(TWO_B, Outcome.CONFIG, "no")
    cluster.add(TWO, 2, use=SliceUse(2, 2))
    made = cluster.look(demand)
    assert made.create == ()
    assert made.reasons[demand.jobs[0]].startswith(text)


def test_limits_of_creations_hold_for_all_groups_and_the_rest_comes_later():
    cluster = Cluster(creates_per_minute=4, creates_per_hour=6)
    made = cluster.look(gangs(1, slices=6))
    assert made.create == ("two",) * 3 + ("two-b",), "a gang's slices may come one after the other"
    assert made.reasons["/u/g"].endswith("no more than 4 slices a minute and 6 an hour are created")
    assert sum(status.demand for status in made.groups.values()) == 6
    cluster.carry_out(made)
    cluster.now += 60_000
    assert cluster.look(gangs(1, slices=6)).create == ("two-b",) * 2
    cluster.creates += [cluster.now - 61_000] * 2
    assert cluster.look(gangs(1, slices=6)).create == ()


def test_this_machines_limit_is_told_and_idle_slices_make_room_for_what_waits():
    cluster = Cluster(max_hosts=3).add(CPU, age_s=3)
    made = cluster.look(gangs(1, slices=2))
    assert (made.create, made.reasons["/u/g"]) == ((), "1 of at most 3 hosts run here (--max-hosts)")
    assert made.release == {"cpu-0": "unused for 3 s"}
    assert released(cluster, gangs()) == {}


def test_a_gang_keeps_the_slices_that_wait_for_the_others_of_a_closed_group():
    cluster = Cluster((TWO,)).add(TWO, use=IDLE, age_s=400).close(TWO, Outcome.STOCK_OUT)
    assert cluster.look(gangs(1, slices=2)).release == {}
    assert cluster.look(gangs(1, slices=4)).release != {}, "so many there never are"


def test_manual_groups_have_no_slices_on_quarantined_hosts():
    group = replace(CPU, hosts_per_slice=2, max_slices=9, template=ManualTemplate(("h1", "h2", "h3", "h4", "h5")))
    cluster = Cluster((group,))
    assert cluster.look(tasks(99)).create == ("cpu", "cpu")
    cluster.lives = (Life("cpu", NOW, 0, ("h3",)),) * 3
    cluster.now += 60_000
    look = cluster.look(tasks(99))
    assert look.create == ("cpu",)
    assert "cpu has 1 of at most 1 slices (h3 failed before; next try at " in look.reasons[JobId("/u/j")]


@pytest.mark.parametrize(
    ("fields", "first"),
    [
        ({}, "a"),
        ({"priority": 50}, "b"),
        ({"hourly_price": 1.0}, "b"),  # a known price before an unknown one
        ({"hourly_price": 1.0, "priority": 150}, "a"),
        ({"hourly_price": 1.0, "hosts_per_slice": 2}, "b"),
    ],
)
def test_groups_are_ranked_by_priority_then_price(fields, first):
    cluster = Cluster((replace(CPU, name="a"), replace(CPU, name="b", **fields)))
    assert cluster.look(tasks()).create == (first,)


def test_a_price_is_that_of_a_task_and_a_gang_pays_for_the_slice():
    two = replace(CPU, name="b", hosts_per_slice=2, hourly_price=1.5)
    cluster = Cluster((replace(CPU, name="a", hourly_price=1.0), two))
    assert cluster.look(tasks(8)).create == ("a",)
    assert cluster.look(tasks(16)).create == ("b",)
    cluster.groups = (replace(TWO, hourly_price=2.0), replace(TWO, name="four", hosts_per_slice=4, hourly_price=3.0))
    assert cluster.look(gangs()).create == ("two",)


def test_of_equal_groups_those_come_first_that_lost_fewer_slices_and_lacked_no_capacity():
    cluster = Cluster((replace(CPU, name="a"), replace(CPU, name="b")))
    cluster.lives = (Life("a", NOW, 3_600_000),)
    assert cluster.look(tasks()).create == ("b",)
    cluster.close(cluster.groups[1], Outcome.STOCK_OUT)
    cluster.now += 15 * 60_000
    assert cluster.look(tasks()).create == ("a",)
