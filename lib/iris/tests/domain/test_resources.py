import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.core.state.booking import Booking, Demand
from iris.core.state.load import WorkerLoad
from iris.domain.entities import Worker
from iris.domain.ids import AttemptId, JobId, WorkerId
from iris.domain.resources import Device, Resources, format_cores, shortfalls, validate_resources
from iris.sched.fit import Host, may_run_on
from rigging.errors import InvalidRequest

GIB = 1 << 30
H100 = Device("gpu", "H100", 8)


@pytest.mark.parametrize(
    ("need", "free", "fits"),
    [
        (Resources(1000, GIB, 0), Resources(1000, GIB, 0), True),
        (Resources(1001), Resources(1000, GIB), False),
        (Resources(0, GIB + 1), Resources(1000, GIB), False),
        (Resources(0, 0, 1), Resources(1000, GIB), False),
        (Resources(0, GIB), Resources(-500, GIB), True),  # asks nothing of what is short
        (Resources(device=Device("gpu", "h100", 8)), Resources(device=H100), True),
        (Resources(device=Device("gpu", "", 1)), Resources(device=H100), True),
        (Resources(device=Device("gpu", "A100", 1, ("H100",))), Resources(device=H100), True),
        (Resources(device=Device("gpu", "A100", 1)), Resources(device=H100), False),
        (Resources(device=Device("tpu", "", 1)), Resources(device=H100), False),
        (Resources(device=Device("gpu", "H100", 9)), Resources(device=H100), False),
        (Resources(device=Device("cpu", "cpu", 0)), Resources(), True),
        (Resources(device=H100), Resources(), False),
    ],
)
def test_fits(need, free, fits):
    assert need.fits(free) is fits
    assert (not shortfalls(need, free)) is fits


def test_sums_keep_the_accelerator_of_the_worker():
    free = Resources(4000, GIB, 10, H100).sub(Resources(1000, 1, 2, Device("gpu", "", 3)))
    assert free == Resources(3000, GIB - 1, 8, Device("gpu", "H100", 5))
    assert free.add(Resources(1000, 1, 2, Device("gpu", "", 3))) == Resources(4000, GIB, 10, H100)


def test_shortfalls_name_the_worst_first():
    found = shortfalls(Resources(4000, 4 * GIB), Resources(2000, GIB))
    shown = [(item.dimension, item.need, item.have) for item in found]
    assert shown == [("memory", "4 GiB of memory", "1 GiB"), ("cpu", "4 cores", "2")]
    (found,) = shortfalls(Resources(device=Device("gpu", "A100", 2, ("H200",))), Resources(device=H100))
    assert (found.need, found.have, found.severity) == ("2 x gpu A100 or H200", "0", 1.0)


def test_amounts_are_written_as_people_do():
    assert [format_cores(n) for n in (4000, 500, 1, 0, -1500)] == ["4", "0.5", "0.001", "0", "-1.5"]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (Resources(-1), "cpu is -1; it must be 0 or more"),
        (Resources(0, -5), "memory is -5"),
        (Resources(0, 0, -5), "disk is -5"),
        (Resources(device=Device("fpga")), "device kind 'fpga' is unknown; it must be cpu, gpu or tpu"),
        (Resources(device=Device("gpu", "H100", 0)), "device gpu H100 has count 0; it must be 1 or more"),
    ],
)
def test_requests_without_sense_are_refused(bad, reason):
    with pytest.raises(InvalidRequest, match=reason):
        validate_resources(bad)
    validate_resources(Resources(0, 0, 0, Device("cpu")))
    validate_resources(Resources(100, GIB, 1, H100))


_kinds, _variants = st.sampled_from(["cpu", "gpu", "tpu"]), st.sampled_from(["", "A", "B"])
_devices = st.none() | st.builds(Device, _kinds, _variants, st.integers(0, 4), st.sampled_from([(), ("B",)]))
_few = st.integers(0, 3)
_amounts = st.builds(Resources, _few, _few, _few, _devices)


@given(_amounts, _amounts, st.builds(Resources, _few, _few, _few))
def test_the_three_ways_to_ask_whether_it_fits_agree(need, capacity, taken):
    load = WorkerLoad()
    load.add(Booking(AttemptId("/u/j/0:0"), JobId("/u/j"), WorkerId("w"), taken))
    worker = Worker(WorkerId("w"), "a", capacity, {}, True)
    expected = need.fits(capacity.sub(load.committed(capacity)))
    host = Host(worker, load, 0)
    assert load.has_room(need, capacity) is expected
    assert host.fits(need) is expected
    assert (host.room_for(need, 1) == 1) is expected
    if expected:
        assert may_run_on(Demand(need, ()), worker)
