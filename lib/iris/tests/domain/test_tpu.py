"""TPU requests are checked against how slices are built."""

import pytest

from iris.domain.resources import Device, slice_hosts, tpu_mistake, whole_slices


def test_slices_are_counted_in_vms():
    assert slice_hosts(Device("tpu", "v5p-64", 4)) == 8
    assert slice_hosts(Device("gpu", "H100", 8)) is None
    assert slice_hosts(Device("tpu", "v99-8", 4)) is None
    assert [whole_slices(Device("tpu", "v5p-64", 4), count) for count in (1, 8, 9)] == [8, 8, 16]


@pytest.mark.parametrize(
    ("device", "replicas", "mistake"),
    [
        (None, 3, None),
        (Device("gpu", "H100", 8), 3, None),
        (Device("tpu", "v5p-64", 4), 8, None),
        (Device("tpu", "v5p-64", 4), 16, None),
        (Device("tpu", "v5p-64", 4), 9,
            "needs 9 tasks on slices of v5p-64, which have 8 VMs each; replicas must be a multiple of that, e.g. 16"),
        (Device("tpu", "v5p-64", 8), 8, "needs 8 chips of one VM; a VM of v5p-64 has 4"),
        (Device("tpu", "v5p-64", 4, ("v4-64",)), 8, None),
        (Device("tpu", "v5p-64", 4, ("v4-32",)), 8,
            "alternatives must have as many VMs a slice: v5p-64 has 8, v4-32 has 4"),
    ],
)  # fmt: skip
def test_mistakes_name_what_would_be_right(device, replicas, mistake):
    assert tpu_mistake(device, replicas, "tpu-name") == mistake


def test_an_unknown_type_is_named_also_among_the_alternatives():
    for device in (Device("tpu", "v99-8", 4), Device("tpu", "v5p-8", 4, ("v99-8",))):
        assert "v99-8" in (tpu_mistake(device, 1, "") or "")
