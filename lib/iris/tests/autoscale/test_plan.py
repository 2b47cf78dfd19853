"""Which slices are created and released: decisions over demands, groups and slices."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris.autoscale.closures import Closure, after_answer
from iris.autoscale.demand import Demand
from iris.autoscale.lives import Life
from iris.autoscale.model import Answer, Outcome, SliceRecord, SliceState, SliceUse
from iris.autoscale.plan import Plan, plan
from iris.autoscale.rules import AutoscaleRules
from iris.domain.constraints import Constraint, ConstraintOp, evaluate
from iris.domain.ids import JobId
from iris.domain.resources import Device, Resources
from iris.domain.scale_groups import ScaleGroup
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
            self.slices[name] = SliceRecord(name, group.name, state, at, at, **joined | fields)
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
    assert sum(status.demand for status in made.groups.values()) >= len(created)
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
