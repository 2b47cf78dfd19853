"""Which slices are started for jobs that wait: decisions over a view, with the real scheduler before them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris.domain.constraints import Constraint, ConstraintOp, evaluate
from iris.domain.resources import Device, Resources
from iris.domain.scale_groups import ScaleGroup
from iris.local.fleet.demand import is_unused, slices_wanted
from iris.local.fleet.slices import Slice
from support.iris.scheduling import InMemoryCluster, resources

V4_8 = Device("tpu", "v4-8", 4)
V4_16 = Device("tpu", "v4-16", 4)
CPU = ScaleGroup("cpu", resources(8, 32), max_slices=3, region="us-central1")
FAR = ScaleGroup("far", resources(8, 32), max_slices=3, region="europe-west4")
ONE = ScaleGroup("one", resources(240, 400, device=V4_8), max_slices=2, region="us-central2")
TWO = ScaleGroup("two", resources(240, 400, device=V4_16), hosts_per_slice=2, max_slices=2, region="us-central2")
GROUPS = (TWO, ONE, CPU, FAR)


class Fleet:
    """A cluster whose slices are those that were wanted."""

    def __init__(self, groups=GROUPS, max_hosts=8):
        self.cluster, self.groups, self.max_hosts = InMemoryCluster(), groups, max_hosts
        self.present: list[Slice] = []
        self.leaving: list[Slice] = []
        self.refused = {}

    def look(self) -> list[str]:
        """Schedule, then start what is wanted; its names."""
        self.cluster.schedule()
        wanted = slices_wanted(self.cluster.view, self.groups, self.present, self.leaving, self.max_hosts)
        self.present += wanted.start
        self.refused = dict(wanted.refused)
        return [item.name for item in wanted.start]

    def join(self) -> None:
        """All slices' hosts connect."""
        for item in self.present:
            for host in item.hosts:
                worker = self.cluster.view.workers.get(host.worker_id)
                if worker is None or not worker.connected:
                    self.cluster.connect(host.worker_id, host.capacity, **dict(host.attributes))

    def gang(self, name="/u/gang", replicas=2, **fields):
        self.cluster.submit(
            name, resources(8, 16, device=V4_16), replicas=replicas, coscheduling_group_by="tpu-name", **fields
        )


def where(*regions):
    return (Constraint("region", ConstraintOp.IN, regions),)


@pytest.mark.parametrize(
    ("job", "started"),
    [
        (None, []),
        ({}, ["cpu-0"]),  # the plainest that will do
        ({"constraints": where("europe-west4")}, ["far-0"]),
        ({"constraints": (Constraint("region", ConstraintOp.EQ, ("europe-west4",), soft=True),)}, ["far-0"]),
        ({"need": Resources(10**9)}, []),
        ({"need": resources(1, device=Device("gpu", "H100", 1))}, []),
    ],
    ids=["none", "plain", "constraint", "preference", "too large", "no such device"],
)
def test_a_job_gets_the_host_that_will_do(job, started):
    fleet = Fleet()
    if job is not None:
        fleet.cluster.submit(**job)
    assert fleet.look() == started
    assert fleet.look() == [], "it is on its way"
    assert fleet.refused == {}


def test_a_slice_that_starts_serves_as_many_tasks_as_it_holds():
    fleet = Fleet()
    fleet.cluster.submit(replicas=17)
    assert fleet.look() == ["cpu-0", "cpu-1", "cpu-2"]
    fleet.join()
    assert fleet.look() == []
    assert not fleet.cluster.view.queue


def test_a_gang_gets_a_whole_slice_and_runs_there_and_that_is_unused_when_all_hosts_hold_nothing():
    fleet = Fleet()
    fleet.gang(constraints=where("us-central2"))
    assert fleet.look() == ["two-0"]
    [item] = fleet.present
    assert not is_unused(fleet.cluster.view, item), "its hosts start"
    fleet.join()
    assert is_unused(fleet.cluster.view, item)
    assert fleet.look() == []
    assert not is_unused(fleet.cluster.view, item)
    assert {task.worker_id for task in fleet.cluster.view.tasks["/u/gang"]} == {"two-0-w0@local", "two-0-w1@local"}


def test_gangs_get_slices_of_their_own_and_multislice_jobs_those_that_are_unused():
    fleet = Fleet()
    fleet.gang("/u/a")
    fleet.gang("/u/b")
    assert fleet.look() == ["two-0", "two-1"]
    fleet.gang("/u/c")
    assert fleet.look() == []
    assert fleet.refused == {}, "max_slices are there: that is the file's limit, not this machine's"
    fleet = Fleet()
    fleet.gang("/u/a")
    fleet.look()
    fleet.join()
    fleet.cluster.stop("/u/a")
    for number in range(2):
        fleet.cluster.observe(f"/u/a/{number}:0", fleet.cluster.task(f"/u/a/{number}").state.KILLED)
    fleet.gang("/u/b", replicas=4)
    assert fleet.look() == ["two-1"]


def test_the_limit_of_this_machine_is_told_for_each_job_that_meets_it_and_gangs_get_all_or_nothing():
    fleet = Fleet(max_hosts=1)
    fleet.cluster.submit("/u/a", resources(8))
    fleet.cluster.submit("/u/b", resources(8))
    assert fleet.look() == ["cpu-0"]
    assert fleet.refused == {"/u/b": "1 of at most 1 hosts run here (--max-hosts)"}
    fleet = Fleet(max_hosts=3)
    fleet.gang(replicas=4)
    assert fleet.look() == []
    assert fleet.refused == {"/u/gang": "0 of at most 3 hosts run here (--max-hosts)"}


def test_what_waits_for_something_else_starts_nothing_and_names_that_leave_are_not_used_yet():
    fleet = Fleet()
    fleet.cluster.submit("/u/a")
    fleet.look()
    fleet.join()
    # Not scheduled: as if something else kept it from the host that is free.
    fleet.cluster.submit("/u/b")
    wanted = slices_wanted(fleet.cluster.view, fleet.groups, fleet.present, (), 8)
    assert wanted.start == ()
    fleet = Fleet()
    fleet.leaving = [Slice(CPU, 0)]
    fleet.cluster.connect("cpu-1-w0@local", CPU.host, **dict(Slice(CPU, 1).hosts[0].attributes))
    fleet.cluster.submit(need=resources(8), replicas=2)
    assert fleet.look() == ["cpu-2"], "cpu-1 is known to the controller, and took one task"


NEEDS = st.sampled_from(
    [
        (resources(1), 1, ""), (resources(4, 8), 3, ""), (resources(1, device=V4_8), 1, ""),
        (resources(1, device=V4_16), 2, "tpu-name"), (resources(1, device=V4_16), 4, "tpu-name"),
        (resources(1000), 1, ""),
    ]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(NEEDS, st.booleans()), max_size=8), st.integers(1, 9))
def test_whatever_waits_bounds_hold_and_a_plain_job_waits_only_where_they_are_met(jobs, max_hosts):
    fleet = Fleet(max_hosts=max_hosts)
    for number, ((need, replicas, key), is_pinned) in enumerate(jobs):
        regions = where("us-central2", "europe-west4") if is_pinned else ()
        fleet.cluster.submit(f"/u/j{number}", need, replicas=replicas, coscheduling_group_by=key, constraints=regions)
    # The scheduler may pack tasks otherwise than was thought: then what is left gets slices once the first are there.
    while fleet.look():
        assert fleet.look() == [], "one look is enough until they have joined"
        fleet.join()
    hosts = sum(item.group.hosts_per_slice for item in fleet.present)
    assert hosts <= max_hosts
    assert len({item.name for item in fleet.present}) == len(fleet.present)
    counts = {group.name: sum(item.group is group for item in fleet.present) for group in GROUPS}
    assert all(counts[group.name] <= group.max_slices for group in GROUPS)
    for _, _, job_id in fleet.cluster.view.queue:
        spec = fleet.cluster.view.jobs[job_id].spec
        for group in GROUPS:
            if spec.replicas > 1 or not spec.resources.fits(group.host):
                continue
            is_met = counts[group.name] == group.max_slices or hosts + group.hosts_per_slice > max_hosts
            assert is_met or not evaluate(spec.constraints, group.host_attributes)
