"""Requests that could never be met are refused with the largest there is."""

import pytest

from iris.domain.constraints import Constraint, ConstraintOp
from iris.domain.entities import CommandEntrypoint, JobSpec
from iris.domain.ids import JobId, WorkerId
from iris.domain.resources import Device
from iris.sched.feasible import impossible_reason
from iris.sched.testing import resources

LOCAL = (WorkerId("local"), resources(2, 8, 50), {"zone": "a"})
LARGE = (WorkerId("large"), resources(16, 4, 50, Device("gpu", "H100", 4)), {"zone": "b"})


def spec(need=None, **fields) -> JobSpec:
    return JobSpec(JobId("/u/j"), CommandEntrypoint(("true",)), need or resources(), **fields)


def test_nothing_is_known_to_be_impossible_without_workers():
    assert impossible_reason(spec(resources(10_000)), []) is None


@pytest.mark.parametrize(
    ("need", "reason"),
    [
        (resources(2, 8, 50), None),
        (resources(16, 4), None),
        (resources(64), "needs 64 cores; the largest worker (large) has 16"),
        (resources(1, 9), "needs 9 GiB of memory; the largest worker (local) has 8 GiB"),
        (resources(1, 1, 51), "needs 51 GiB of disk; the largest worker (local) has 50 GiB"),
        (resources(device=Device("gpu", "h100", 4)), None),
        (resources(device=Device("gpu", "", 8)), "needs 8 x gpu; the largest worker (large) has 4"),
        (resources(device=Device("gpu", "A100", 1)), "needs 1 x gpu A100; there are gpu H100"),
        (resources(device=Device("tpu", "v4-8", 4)), "needs 4 x tpu v4-8; there are gpu H100"),
        (
            resources(4, 6),
            "needs 6 GiB of memory with all else it asks for on one worker; no worker has all of that together",
        ),
    ],
)
def test_sizes(need, reason):
    assert impossible_reason(spec(need), [LOCAL, LARGE]) == reason


def test_one_worker():
    assert impossible_reason(spec(resources(64)), [LOCAL]) == "needs 64 cores; the largest worker (local) has 2"
    gpu = resources(device=Device("gpu", "H100", 1))
    assert impossible_reason(spec(gpu), [LOCAL]) == "needs 1 x gpu H100; no worker has an accelerator"


def test_the_largest_is_looked_for_among_those_that_meet_the_constraints():
    zone_a = (Constraint("zone", ConstraintOp.EQ, ("a",)),)
    reason = impossible_reason(spec(resources(8), constraints=zone_a), [LOCAL, LARGE])
    assert reason == "needs 8 cores; the largest worker (local) has 2"


def test_constraints():
    zone_c = Constraint("zone", ConstraintOp.EQ, ("c",))
    assert impossible_reason(spec(constraints=(zone_c,)), [LOCAL, LARGE]) == "no worker has zone = c; workers have a, b"
    soft = Constraint("zone", ConstraintOp.EQ, ("c",), soft=True)
    assert impossible_reason(spec(constraints=(soft,)), [LOCAL, LARGE]) is None


def test_a_gang_needs_its_attribute():
    gang = spec(replicas=2, coscheduling_group_by="slice")
    reason = "no worker has the attribute 'slice', by which the gang of 2 is grouped"
    assert impossible_reason(gang, [LOCAL, LARGE]) == reason
    assert impossible_reason(spec(replicas=2, coscheduling_group_by="zone"), [LOCAL]) is None
