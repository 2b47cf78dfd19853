"""The sums over a worker's bookings are those of its bookings, whatever came and went."""

import random
from collections import Counter

import pytest

from iris.core.state.load import Booking, WorkerLoad
from iris.domain.ids import AttemptId, JobId, WorkerId
from iris.domain.resources import Device, Resources
from support.iris.scheduling import resources

GPU = Device("gpu", "H100", 8)
CAPACITY = resources(16, 64, 200, GPU)


def booking(number: int, need: Resources, is_gang: bool = False) -> Booking:
    return Booking(AttemptId(f"/u/j{number % 3}/{number}:0"), JobId(f"/u/j{number % 3}"), WorkerId("w"), need, is_gang)


Sums = tuple[int, int, int, int, int, dict[JobId, int]]


def added_up(load: WorkerLoad) -> Sums:
    here = load.bookings.values()
    return (
        sum(0 if item.waits else item.resources.cpu_millis for item in here),
        sum(item.resources.memory_bytes for item in here),
        sum(item.resources.disk_bytes for item in here),
        sum(item.resources.device.count for item in here if item.resources.device is not None),
        sum(item.stopping for item in here),
        dict(Counter(item.job_id for item in here if item.is_gang)),
    )


def kept(load: WorkerLoad) -> Sums:
    committed = load.committed(CAPACITY)
    count = committed.device.count if committed.device is not None else 0
    amounts = (committed.cpu_millis, committed.memory_bytes, committed.disk_bytes, count)
    return (*amounts, load.stopping, dict(load.gang_attempts))


@pytest.mark.parametrize("seed", range(20))
def test_sums_follow_whatever_comes_goes_lends_and_stops(seed: int) -> None:
    chance = random.Random(seed)
    load = WorkerLoad()
    for number in range(60):
        have = list(load.bookings.values())
        what = chance.choice(("add", "add", "remove", "wait", "stop"))
        if what == "add" or not have:
            device = Device("gpu", "H100", chance.randint(1, 4)) if chance.random() < 0.5 else None
            need = resources(chance.randint(0, 4), chance.randint(0, 9), chance.randint(0, 9), device)
            load.add(booking(number, need, is_gang=chance.random() < 0.5))
        elif what == "remove":
            load.remove(chance.choice(have))
        elif what == "wait":
            load.set_waits(chance.choice(have), chance.choice((0, 0, 1, 2)))
        else:
            load.mark_stopping(chance.choice(have), found=chance.random() < 0.5)
        assert kept(load) == added_up(load)
    for item in list(load.bookings.values()):
        load.remove(item)
    assert kept(load) == (0, 0, 0, 0, 0, {})


def test_only_the_cpu_is_lent_and_that_it_ever_was_is_remembered() -> None:
    load = WorkerLoad()
    item = booking(0, resources(2, 3))
    assert (item.is_gang, item.weight, item.stopping, item.found, item.waits) == (False, 0.0, False, False, 0)
    assert (item.has_lent, item.user) == (False, "u")
    load.add(item)
    load.set_waits(item, 0)
    assert (load.cpu_millis, item.has_lent) == (2000, False)
    load.set_waits(item, 2)
    assert (load.cpu_millis, load.memory_bytes, item.has_lent) == (0, resources(0, 3).memory_bytes, True)
    load.set_waits(item, 0)
    assert (load.cpu_millis, item.has_lent) == (2000, True)


def test_what_is_found_on_its_way_out_is_told_and_counts_once() -> None:
    load = WorkerLoad()
    item = booking(0, resources(1))
    load.add(item)
    load.mark_stopping(item, found=False)
    load.mark_stopping(item, found=True)
    assert (load.stopping, item.stopping, item.found) == (1, True, True)
