"""The sums over a worker's bookings are those of its bookings, whatever came and went."""

import random

import pytest

from iris.core.state.load import Booking, WorkerLoad
from iris.domain.ids import AttemptId, JobId, WorkerId
from iris.domain.resources import Device, Resources
from iris.testing.scheduling import resources

GPU = Device("gpu", "H100", 8)
CAPACITY = resources(16, 64, 200, GPU)


def booking(number: int, need: Resources, is_gang: bool = False) -> Booking:
    return Booking(AttemptId(f"/u/j{number % 3}/{number}:0"), JobId(f"/u/j{number % 3}"), WorkerId("w"), need, is_gang)


def added_up(load: WorkerLoad) -> tuple[int, int, int, int, int, dict[str, int]]:
    here = load.bookings.values()
    devices = [item.resources.device for item in here]
    gangs: dict[str, int] = {}
    for item in here:
        if item.is_gang:
            gangs[item.job_id] = gangs.get(item.job_id, 0) + 1
    return (
        sum(0 if item.waits else item.resources.cpu_millis for item in here),
        sum(item.resources.memory_bytes for item in here),
        sum(item.resources.disk_bytes for item in here),
        sum(device.count for device in devices if device is not None),
        sum(item.stopping for item in here),
        gangs,
    )


def kept(load: WorkerLoad) -> tuple[int, int, int, int, int, dict[str, int]]:
    return (
        load.cpu_millis, load.memory_bytes, load.disk_bytes, load.device_count, load.stopping, dict(load.gang_attempts),
    )  # fmt: skip


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


def test_a_new_booking_lends_nothing_and_is_on_no_way_out() -> None:
    made = Booking(AttemptId("/ann/j/0:0"), JobId("/ann/j"), WorkerId("w"), resources(2))
    assert (made.is_gang, made.weight, made.stopping, made.found, made.waits, made.has_lent) == (
        False, 0.0, False, False, 0, False,
    )  # fmt: skip
    assert made.user == "ann"


def test_only_the_cpu_is_lent_and_that_it_ever_was_is_remembered() -> None:
    load = WorkerLoad()
    item = booking(0, resources(2, 3))
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


NEEDS = [
    resources(a, b, c, d)
    for a in (0, 9, 10, 11)
    for b in (0, 32, 33)
    for c in (0, 50, 51)
    for d in (None, Device("gpu", "H100", 5), Device("gpu", "H100", 6), Device("gpu", "A100", 1), Device("cpu", "", 9))
]


def test_there_is_room_exactly_where_the_amount_left_is_enough() -> None:
    load = WorkerLoad()
    load.add(booking(0, resources(6, 32, 150, Device("gpu", "H100", 3))))
    committed = load.committed(CAPACITY)
    assert committed == resources(6, 32, 150, Device("gpu", "H100", 3))
    for need in NEEDS:
        assert load.has_room(need, CAPACITY) == need.fits(CAPACITY.sub(committed)), need
    plain = resources(16, 64, 200)
    assert load.committed(plain) == resources(6, 32, 150)
    assert not load.has_room(resources(1, device=Device("gpu", "H100", 1)), plain)
    assert load.has_room(resources(1), plain)
