"""What waits for capacity after a round, by kind of request."""

import pytest

from iris.autoscale.planning.demand import demands
from iris.domain.constraints import Constraint, ConstraintOp
from iris.domain.entities import JobsPerUser
from iris.domain.events import JobHeld, Preempted
from iris.domain.ids import AttemptId, JobId
from iris.domain.resources import Device
from iris.domain.states import PriorityBand, TaskState
from support.iris.scheduling import InMemoryCluster, resources

V4_16 = Device("tpu", "v4-16", 4)
TPU = resources(8, 16, device=V4_16)


def waiting(cluster, schedule=True):
    """What waits, in order: tasks, the size and the number of slices of gangs, and jobs."""
    if schedule:
        cluster.schedule()
    found = demands(cluster.view, cluster.now_ms)
    return [(item.tasks, item.gang_size, item.gang_slices, [*item.jobs]) for item in found]


def gang(cluster, name="/u/gang", replicas=2, **fields):
    cluster.submit(name, TPU, replicas=replicas, coscheduling_group_by="tpu-name", **fields)


def slice_of(cluster, name="t0", cpu=8):
    for number in range(2):
        cluster.connect(f"{name}-w{number}", resources(cpu, 32, device=V4_16), **{"tpu-name": name})


def test_equal_requests_are_one_demand_in_the_order_of_bands_and_users():
    cluster = InMemoryCluster()
    cluster.submit("/ann/a", replicas=3)
    cluster.submit("/ann/b", resources(2))
    cluster.submit("/bob/c", replicas=4)
    cluster.submit("/bob/d", resources(2), band=PriorityBand.PRODUCTION)
    gang(cluster, "/bob/e", 4)
    gang(cluster, "/bob/f", 4)
    assert waiting(cluster) == [
        (1, 0, 1, ["/bob/d"]),
        (7, 0, 1, ["/ann/a", "/bob/c"]),
        (1, 0, 1, ["/ann/b"]),
        (8, 2, 2, ["/bob/e", "/bob/f"]),
    ]


@pytest.mark.parametrize(
    ("fields", "tasks"),
    [
        ({}, 9),
        ({"max_running": 4}, 4),
        ({"start_at_ms": 10**9}, 0),
        ({"after": "/u/first:any"}, 0),
    ],
    ids=["plain", "max_running", "start at", "after"],
)  # fmt: skip
def test_what_a_limit_holds_back_is_no_demand(fields, tasks):
    cluster = InMemoryCluster()
    cluster.submit("/u/first", resources(2))
    cluster.submit("/u/job", replicas=9, **fields)
    assert sum(item[0] for item in waiting(cluster) if "/u/first" not in item[3]) == tasks


def test_held_jobs_and_users_at_their_limit_are_no_demand():
    cluster = InMemoryCluster()
    cluster.submit("/u/held")
    cluster.do(JobHeld(JobId("/u/held"), "held by ann"))
    assert waiting(cluster) == []
    cluster.view.jobs_per_user = JobsPerUser(max_running=2)
    for number in range(4):
        cluster.submit(f"/u/{number}", replicas=3)
    assert waiting(cluster) == [(6, 0, 1, ["/u/0", "/u/1"])]


def test_what_the_round_placed_is_no_demand_and_a_gang_waits_for_its_running_members():
    cluster = InMemoryCluster()
    slice_of(cluster)
    gang(cluster, "/u/a")
    gang(cluster, "/u/b")
    assert waiting(cluster) == [(2, 2, 1, ["/u/b"])]


def test_the_capacity_of_stopping_attempts_goes_to_the_first_that_wait():
    cluster = InMemoryCluster()
    cluster.connect("w", resources(4, 8), zone="a")
    cluster.launch("/u/low", resources(2), replicas=2, band=PriorityBand.BATCH)
    cluster.submit("/u/high", resources(2), replicas=3, band=PriorityBand.PRODUCTION)
    # Two of the three get the host of the preempted ones, which wait for their own attempts to end.
    assert waiting(cluster) == [(1, 0, 1, ["/u/high"])]
    elsewhere = (Constraint("zone", ConstraintOp.EQ, ("b",)),)
    cluster.submit("/u/elsewhere", resources(2), constraints=elsewhere, band=PriorityBand.PRODUCTION)
    assert waiting(cluster)[-1] == (1, 0, 1, ["/u/elsewhere"])
    cluster = InMemoryCluster()
    slice_of(cluster)
    gang(cluster, "/u/low", band=PriorityBand.BATCH)
    cluster.schedule()
    gang(cluster, "/u/high", band=PriorityBand.PRODUCTION)
    gang(cluster, "/u/next", band=PriorityBand.PRODUCTION)
    cluster.submit("/u/other", resources(7, 16, device=V4_16), replicas=2, coscheduling_group_by="tpu-name")
    assert waiting(cluster) == [(2, 2, 1, ["/u/high", "/u/next"]), (2, 2, 1, ["/u/other"])]


def test_a_job_that_waits_for_its_own_attempts_is_left_out_and_of_many_the_first_are_named():
    cluster = InMemoryCluster()
    cluster.connect("w", resources(1))
    cluster.launch("/u/j0", replicas=2)
    for number in range(1, 21):
        cluster.submit(f"/u/j{number}")
    assert waiting(cluster)[0] == (21, 0, 1, [f"/u/j{number}" for number in range(16)])
    cluster.do(Preempted(AttemptId("/u/j0/0:0"), "for a test"))
    assert waiting(cluster)[0][3][:2] == ["/u/j1", "/u/j2"]


def test_child_jobs_prefer_the_region_of_their_running_parent():
    cluster = InMemoryCluster()
    cluster.connect("w", resources(1, 8), region="us-central2")
    cluster.launch("/u/parent")
    cluster.observe("/u/parent/0:0", TaskState.RUNNING)
    cluster.submit("/u/parent/child")
    cluster.submit("/u/other", constraints=(Constraint("zone", ConstraintOp.EQ, ("a",)),))
    cluster.schedule()
    assert [item.region for item in demands(cluster.view, cluster.now_ms)] == ["us-central2", ""]
