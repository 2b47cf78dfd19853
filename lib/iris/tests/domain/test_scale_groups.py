import pytest

from iris.domain.resources import Device
from iris.domain.scale_groups import ScaleGroup, offers
from support.iris.scheduling import resources

TPU = ScaleGroup("v4", resources(8, 16, 100, Device("tpu", "v4-16", 4)), 2, region="r", zone="r-b", preemptible=True)


def test_attributes_are_the_place_the_device_and_what_is_said_besides() -> None:
    place = {"region": "r", "zone": "r-b", "preemptible": "true", "scale-group": "v4", "slice": "v4"}
    assert TPU.host_attributes == {**place, "device-type": "tpu", "device-variant": "v4-16", "tpu-name": "v4"}
    assert ScaleGroup("cpu", resources(4)).host_attributes == {
        "preemptible": "false",
        "scale-group": "cpu",
        "slice": "cpu",
    }
    gpu = ScaleGroup("h", resources(1, device=Device("gpu", "H100", 8)), attributes=(("zone", "own"), ("rack", "7")))
    device = {"device-type": "gpu", "device-variant": "H100", "scale-group": "h", "slice": "h"}
    assert gpu.host_attributes == {"preemptible": "false", **device, "pool": "h", "zone": "own", "rack": "7"}


@pytest.mark.parametrize(
    ("need", "count"),
    [
        (resources(8, 16), 2), (resources(3, 1), 4), (resources(1, 5), 6), (resources(9, 1), 0),
        (resources(1, 1, device=Device("tpu", "v4-16", 2)), 4), (resources(0, 0), 2048),
    ],
)  # fmt: skip
def test_a_slice_holds_what_each_of_its_hosts_holds(need, count: int) -> None:
    assert TPU.tasks_per_slice(need) == count


def test_groups_that_may_have_no_slice_offer_nothing() -> None:
    none = ScaleGroup("none", resources(4), max_slices=0)
    assert [(name, host) for name, host, _ in offers((none, TPU))] == [("scale group v4", TPU.host)]
    assert next(offers((TPU,)))[2] == TPU.host_attributes
