import random

import pytest

from iris.domain.constraints import Constraint, ConstraintOp
from iris.domain.resources import Device, Resources
from iris.domain.states import TaskState
from iris.sched.fit import Host, Pool, Pools, hosts_of
from support.iris.scheduling import InMemoryCluster, resources

GPU = Device("gpu", "H100", 8)
NEEDS = [
    resources(cpu, memory, disk, device)
    for cpu in (0, 1, 3)
    for memory in (0, 1, 7)
    for disk in (0, 2)
    for device in (None, Device("gpu", "H100", 1), Device("gpu", "H100", 3), Device("cpu", "", 4))
]


def host_of(cluster: InMemoryCluster, name: str = "w") -> Host:
    return next(host for host in hosts_of(cluster.view) if host.worker.worker_id == name)


@pytest.fixture
def used(cluster: InMemoryCluster) -> InMemoryCluster:
    """A worker of which half of everything is used."""
    cluster.connect("w", resources(10, 30, 20, GPU))
    cluster.launch("/u/first", resources(5, 15, 10, Device("gpu", "H100", 4)))
    return cluster


def test_a_host_has_what_its_worker_has_less_what_is_taken(used):
    assert host_of(used).free == resources(5, 15, 10, Device("gpu", "H100", 4))
    assert host_of(used).coming is None
    host = host_of(used)
    host.take(resources(1, 2, 3, Device("gpu", "H100", 1)), 3)
    assert host.free == resources(2, 9, 1, Device("gpu", "H100", 1)), "several at once"


@pytest.mark.parametrize("need", NEEDS, ids=str)
def test_as_many_fit_as_can_be_taken_one_after_the_other(used, need: Resources):
    host, counted = host_of(used), 0
    while counted < 30 and need.fits(host.free):
        assert host.fits(need)
        host.take(need)
        counted += 1
    assert host.fits(need) == (counted == 30)
    for limit in (1, 2, 30):
        assert host_of(used).room_for(need, limit) == min(counted, limit)


def test_what_is_on_its_way_out_is_expected_and_not_yet_there(used):
    used.stop("/u/first")
    host = host_of(used)
    assert host.coming == resources(5, 15, 10, Device("gpu", "H100", 4))
    assert not host.fits(resources(6))
    assert host.will_fit(resources(10, 30, 20, GPU))
    assert not host.will_fit(resources(11))
    host.expect(resources(1))
    assert host.will_fit(resources(11))
    used.observe("/u/first/0:0", TaskState.KILLED)
    assert host_of(used).coming is None


@pytest.mark.parametrize("seed", range(30))
def test_a_pool_finds_the_best_host_exactly_where_one_has_room(seed: int):
    chance = random.Random(seed)
    cluster = InMemoryCluster()
    for number in range(chance.randint(1, 6)):
        device = GPU if chance.random() < 0.3 else None
        cluster.connect(f"w{number}", resources(chance.randint(1, 8), chance.randint(1, 8), 9, device))
    hosts = hosts_of(cluster.view)
    pools = Pools(hosts)
    wanted = [resources(chance.randint(0, 4), chance.randint(0, 4), chance.randint(0, 3)) for _ in range(4)]
    for number, need in enumerate(wanted):
        cluster.submit(f"/u/j{number}", need)
    for _ in range(60):
        demand = cluster.view.demands[f"/u/j{chance.randrange(4)}"]
        found = pools.of(demand).find(demand.resources)
        able = [host for host in hosts if host.held_by is None and host.fits(demand.resources)]
        if found is None:
            assert able == []
            continue
        assert found in able
        plain = [host for host in able if host.device is None]
        assert found.device is None or not plain, "a task that needs no accelerator leaves them alone"
        found.take(demand.resources)
        if chance.random() < 0.1:
            chance.choice(hosts).held_by = cluster.submit(f"/u/keeps{chance.random()}")


def test_the_host_with_least_cpu_and_then_least_memory_left_is_taken(cluster):
    cluster.connect("large", resources(4, 4))
    cluster.connect("roomy", resources(2, 8))
    cluster.connect("small", resources(2, 4))
    cluster.submit(need=resources(1, 1))
    demand = cluster.view.demands["/u/job"]
    hosts = hosts_of(cluster.view)
    order = []
    pool = Pool(demand, hosts)
    while (host := pool.find(resources(2, 4))) is not None:
        host.take(resources(2, 4))
        order.append(host.worker.worker_id)
    assert order == ["small", "roomy", "large"] or order == ["small", "roomy", "large", "large"]


LARGE = resources(2, 2, 2, Device("gpu", "H100", 2))


@pytest.mark.parametrize("amounts", [(1, 2, 2, 2), (2, 1, 2, 2), (2, 2, 1, 2), (2, 2, 2, 1)])
def test_where_something_missed_all_that_asks_for_no_less_of_anything_misses(cluster, amounts: tuple[int, ...]):
    *plain, count = amounts
    smaller = resources(*plain, Device("gpu", "H100", count))
    cluster.connect("w", resources(0.5, 0.5, 0.5, Device("gpu", "H100", 0)))
    cluster.submit(need=LARGE)
    demand = cluster.view.demands["/u/job"]
    pool = Pool(demand, hosts_of(cluster.view))
    assert not pool.misses(LARGE)
    assert pool.find(LARGE) is None
    assert pool.misses(LARGE)
    assert not pool.misses(smaller)
    assert pool.find(smaller) is None
    assert pool.misses(smaller)
    assert pool.misses(LARGE)
    assert not pool.misses(resources(9, 9, 9, Device("gpu", "H100", 0)))


def test_hosts_are_found_by_the_values_of_a_hard_constraint(cluster):
    for number, zone in enumerate("abac"):
        cluster.connect(f"w{number}", resources(1), zone=zone)
    cluster.connect("none", resources(1))
    pools = Pools(hosts_of(cluster.view))
    found = {zone: [host.worker.worker_id for host in hosts] for zone, hosts in pools.by_value("zone").items()}
    assert found == {"a": ["w0", "w2"], "b": ["w1"], "c": ["w3"]}
    cases = (
        (Constraint("zone", ConstraintOp.EQ, ("a",)), {"w0", "w2"}),
        (Constraint("zone", ConstraintOp.IN, ("b", "c", "x")), {"w1", "w3"}),
        (Constraint("zone", ConstraintOp.NE, ("a",)), {"w1", "w3", "none"}),
        (Constraint("zone", ConstraintOp.EQ, ("a",), soft=True), {"w0", "w1", "w2", "w3", "none"}),
    )
    for number, (constraint, names) in enumerate(cases):
        cluster.submit(f"/u/j{number}", constraints=(constraint,))
        demand = cluster.view.demands[f"/u/j{number}"]
        assert {host.worker.worker_id for host in pools.of(demand).hosts} == names
        assert pools.of(demand) is pools.of(demand)
