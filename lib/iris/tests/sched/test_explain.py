"""What is said of work that waits: what it lacks, whose end it waits for, and which hosts are out of use."""

from typing import Any

import pytest

from iris.domain.constraints import Constraint, ConstraintOp
from iris.domain.events import Event, WorkerCordoned, WorkerDisconnected, WorkerLate, WorkerTroubled
from iris.domain.ids import WorkerId
from iris.domain.resources import Device, Resources
from iris.sched.explain import Offer, explain_device, explain_shortfall
from support.iris.scheduling import InMemoryCluster, resources

H100 = Device("gpu", "H100", 4)
V4_16 = Device("tpu", "v4-16", 4)
GANG = {"replicas": 2, "coscheduling_group_by": "pool"}
Workers = dict[str, tuple[Resources, dict[str, str]]]
Jobs = dict[str, dict[str, Any]]
Names = tuple[str, ...]


def workers(capacity: Resources, *names: str, **attributes: str) -> Workers:
    return dict.fromkeys(names, (capacity, attributes))


def is_(key: str, value: str, op: ConstraintOp = ConstraintOp.EQ) -> Constraint:
    return Constraint(key, op, (value,) if value else ())


PLAIN = workers(resources(8, 64), "w")
GPUS = workers(resources(4, 16, device=H100), "g")
ZONES = {**workers(resources(4, 16), "w1", zone="a"), **workers(resources(4, 16), "w2", zone="b", fast="1")}
POOL = workers(resources(2, 8), "a0", "a1", pool="a")
SLICE = workers(resources(4, 8, device=V4_16), "s-0", "s-1", **{"tpu-name": "s"})


@pytest.mark.parametrize(
    ("there", "running", "job", "reason"),
    [
        ({}, {}, {}, "no worker is connected"),
        ({}, {}, GANG, "no worker is connected"),
        # The nearest worker and its tightest dimension.
        ({**workers(resources(1, 64), "far"), **workers(resources(6, 4), "near")}, {}, {"need": resources(8, 5)},
            "needs 8 cores; worker near has 6 of 6 free"),
        # The job that holds most of what is scarce is named.
        (
            PLAIN,
            {
                "/u/memory": {"need": resources(1, 60)},
                "/u/cpu": {"need": resources(2, 1), "replicas": 2},
                "/u/single": {"need": resources(3, 1)},
            },
            {"need": resources(4, 1)},
            "needs 4 cores; worker w has 0 of 8 free; next expected when a task of /u/cpu ends",
        ),
        # Not one that is too small when empty.
        ({**workers(resources(2, 16), "small"), **workers(resources(4, 16), "near")},
            {"/u/fill0": {"need": resources(2)}, "/u/fill1": {"need": resources(3)}}, {"need": resources(3)},
            "needs 3 cores; worker near has 1 of 4 free; next expected when a task of /u/fill1 ends"),
        # Constraints and devices.
        (ZONES, {}, {"constraints": (is_("zone", "c"),)}, "no worker has zone = c; workers have a, b"),
        (ZONES, {}, {"constraints": (is_("rack", "1"),)}, "no worker has rack = 1; none has the attribute 'rack'"),
        (ZONES, {}, {"constraints": (is_("zone", "a"), is_("fast", "", ConstraintOp.EXISTS))},
            "no one worker has all of: zone = a; fast exists"),
        (PLAIN, {}, {"need": resources(device=V4_16)}, "needs 4 x tpu v4-16; no worker has an accelerator"),
        (GPUS, {}, {"need": resources(device=V4_16)}, "needs 4 x tpu v4-16; there are gpu H100"),
        (GPUS, {"/u/holds": {"need": resources(device=Device("gpu", "H100", 3))}},
            {"need": resources(device=Device("gpu", "H100", 2))},
            "needs 2 x gpu H100; worker g has 1 of 4 free; next expected when a task of /u/holds ends"),
        # A parent that holds what its own children wait for is a deadlock; it is seen in the child's reason.
        (GPUS, {"/u/parent": {"need": resources(device=H100)}},
            {"name": "/u/parent/child", "need": resources(device=Device("gpu", "H100", 1))},
            "needs 1 x gpu H100; worker g has 0 of 4 free; next expected when a task of /u/parent ends"),
        # Gangs.
        (PLAIN, {}, GANG, "no connected worker has the attribute 'pool', by which the gang of 2 is grouped"),
        ({**POOL, **workers(resources(2, 8), "alone", zone="x")}, {}, {**GANG, "constraints": (is_("zone", "x"),)},
            "no worker has zone = x; none has the attribute 'zone'"),
        ({**POOL, **workers(resources(2, 8, device=H100), "alone")}, {},
            {**GANG, "need": resources(device=Device("gpu", "H100", 1))},
            "needs 1 x gpu H100; no worker has an accelerator"),
        (SLICE, {}, {**GANG, "need": resources(device=H100), "coscheduling_group_by": "tpu-name"},
            "needs 4 x gpu H100; there are tpu v4-16"),
        # The job that is on most of the hosts in the way is named.
        (
            POOL,
            {"/u/one": {}, "/u/both": {"replicas": 2}},
            {**GANG, "need": resources(2)},
            "needs room for 2 tasks in one pool; 1 pool matches, the best, a, has room for 0;"
            " next expected when job /u/both ends",
        ),
        # On each host it is who holds what is short there: here the memory, not most of the cpu.
        (
            POOL,
            {"/u/cores": {"need": resources(1.5, 0.5), "replicas": 2}, "/u/memory": {"need": resources(0.1, 7)}},
            {**GANG, "need": resources(0.1, 6)},
            "needs room for 2 tasks in one pool; 1 pool matches, the best, a, has room for 1;"
            " next expected when job /u/memory ends",
        ),
        # A gang is in the way of another on each of its hosts, whatever else has room there.
        (
            POOL,
            {"/u/gang": {**GANG, "need": resources(1.2)}, "/u/large": {"need": resources(0.7, 7)}},
            {**GANG, "need": resources(0.1, 0.1)},
            "needs room for 2 tasks in one pool; 1 pool matches, the best, a, has room for 0;"
            " next expected when job /u/gang ends",
        ),
        # The group with most room, and how many there are.
        ({**POOL, **workers(resources(2, 8), "b0", pool="b"), **workers(resources(4, 8), "c0", pool="c")}, {},
            {**GANG, "need": resources(3)},
            "needs room for 2 tasks in one pool; 3 pools match, the best, c, has room for 1"),
        # Whole slices of a known type are counted.
        (SLICE, {}, {"need": resources(device=V4_16), "replicas": 4, "coscheduling_group_by": "tpu-name"},
            "needs 2 whole v4-16 slices of 2 hosts each (1 of them free now); there are 1"),
    ],
)  # fmt: skip
def test_what_is_said(
    cluster: InMemoryCluster, there: Workers, running: Jobs, job: dict[str, Any], reason: str
) -> None:
    for name, (capacity, attributes) in there.items():
        cluster.connect(name, capacity, **attributes)
    for name, fields in running.items():
        cluster.launch(name, **fields)
    waiting = cluster.submit(**{"name": "/u/job", **job})
    assert cluster.schedule().reasons == {waiting: reason}


def test_equal_requests_get_equal_reasons_and_different_ones_their_own(cluster: InMemoryCluster) -> None:
    cluster.connect("w", resources(1, 1))
    for name, need in (("/u/a", resources(2, 1)), ("/u/b", resources(2, 1)), ("/u/c", resources(1, 2))):
        cluster.submit(name, need)
    assert cluster.schedule().reasons == {
        "/u/a": "needs 2 cores; worker w has 1 of 1 free",
        "/u/b": "needs 2 cores; worker w has 1 of 1 free",
        "/u/c": "needs 2 GiB of memory; worker w has 1 GiB of 1 GiB free",
    }


SEVEN = tuple(f"w{number}" for number in range(7))
FANS = "(w1: fan 1, w2: fan 2, w3: fan 3, w4: fan 4, w5: fan 5 and 1 more)"


@pytest.mark.parametrize(
    ("names", "gone", "cordoned", "late", "reason"),
    [
        (("a", "b"), ("a", "b"), (), (), "no worker is connected (2 known)"),
        (SEVEN, (), SEVEN[1:], ("w0",), f"no worker takes work; 6 of 7 known are cordoned {FANS}"),
        (("b", "a", "c"), ("c",), (), ("b", "a"), "no worker takes work; not heard for two heartbeats: a, b"),
    ],
)
def test_workers_out_of_use_are_named(
    cluster: InMemoryCluster, names: Names, gone: Names, cordoned: Names, late: Names, reason: str
) -> None:
    for name in names:
        cluster.connect(name, resources())
    for event in (
        *(WorkerDisconnected(WorkerId(name), "a") for name in gone),
        *(WorkerCordoned(WorkerId(name), f"fan {name[1:]}") for name in cordoned),
        *(WorkerLate(WorkerId(name), 10_000) for name in late),
    ):
        cluster.do(event)
    cluster.submit()
    assert cluster.schedule().reasons == {"/u/job": reason}


@pytest.mark.parametrize(
    ("out_of_use", "job", "reason"),
    [
        (WorkerCordoned(WorkerId("s-1"), "bad fan"), {"constraints": (is_("rack", "1"),)},
            "no worker has rack = 1; workers have 0; suitable, but out of use: s-1 (cordoned: bad fan)"),
        (WorkerCordoned(WorkerId("s-1"), "bad fan"), {**GANG, "coscheduling_group_by": "bay"},
            "no connected worker has the attribute 'bay', by which the gang of 2 is grouped;"
            " suitable, but out of use: s-1 (cordoned: bad fan)"),
        (WorkerDisconnected(WorkerId("s-1"), "a"), {"need": resources(4)},
            "needs 4 cores; worker s-0 has 2 of 2 free;"
            " suitable, but out of use: s-1 (away since 2026-11-28 00:00 UTC)"),
        (WorkerDisconnected(WorkerId("s-1"), "a"), {**GANG, "coscheduling_group_by": "tpu-name"},
            "needs 2 hosts of one slice; 1 slice matches, the best, s, has room for 1;"
            " out of use there: s-1 (away since 2026-11-28 00:00 UTC)"),
        (WorkerLate(WorkerId("s-1"), 60_000), {**GANG, "coscheduling_group_by": "tpu-name"},
            "needs 2 hosts of one slice; 1 slice matches, the best, s, has room for 1;"
            " out of use there: s-1 (not heard since 2026-11-27 23:59 UTC)"),
        (WorkerTroubled(WorkerId("s-1"), "a", "disk is full"), {**GANG, "coscheduling_group_by": "rack"},
            "needs room for 2 tasks in one rack; 1 rack matches, the best, 0, has room for 1"),
        (WorkerTroubled(WorkerId("s-1"), "a", "disk is full"),
            {**GANG, "coscheduling_group_by": "tpu-name", "constraints": (is_("rack", "1"),)},
            "no worker has rack = 1; workers have 0"),
    ],
)  # fmt: skip
def test_hosts_out_of_use_that_would_do_are_named(
    cluster: InMemoryCluster, out_of_use: Event, job: dict[str, Any], reason: str
) -> None:
    cluster.now_ms = 1_795_824_000_000  # midnight
    for number in range(2):
        more = {"bay": "1"} if number else {}
        cluster.connect(f"s-{number}", resources(2 + 2 * number), rack=str(number), **{"tpu-name": "s"}, **more)
    cluster.do(out_of_use)
    cluster.submit(**{"need": resources(2), **job})
    assert cluster.schedule().reasons == {"/u/job": reason}


def test_the_tightest_shortfall_of_the_nearest_worker() -> None:
    def offer(name: str, cpu: float, memory: float) -> Offer:
        return Offer(WorkerId(name), resources(8, 8), resources(cpu, memory), {})

    found = explain_shortfall(resources(4, 4), [offer("a", 1, 4), offer("b", 4, 3), offer("c", 3, 1)])
    assert found == "needs 4 GiB of memory; worker b has 3 GiB of 8 GiB free"
    assert explain_shortfall(resources(4, 4), [offer("a", 4, 4)]) == "waits for the next round"


def test_devices_that_there_are_are_told_once_each() -> None:
    need = resources(device=Device("gpu", "A100", 0))
    have = [resources(device=device) for device in (H100, Device("gpu", "H100", 2), Device("tpu", "v4-8", 4))]
    assert explain_device(need, [*have, resources(1)]) == "needs 1 x gpu A100; there are gpu H100, tpu v4-8"
    assert explain_device(resources(1), []) == "needs no accelerator; no worker has an accelerator"
    assert explain_device(resources(1), [resources(1)]) is None
