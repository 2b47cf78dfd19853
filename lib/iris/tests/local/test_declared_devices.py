"""Accelerators that a worker is started with: what they are called, and what cannot be."""

import pytest

from iris.domain.resources import Device
from iris.local.declared_devices import declared_device, device_attributes
from rigging.errors import InvalidRequest


def test_a_host_has_the_chips_of_its_slices_type_and_what_no_host_has_is_refused() -> None:
    assert declared_device("v5p-8", None) == Device("tpu", "v5p-8", 4)
    assert declared_device("v4-16", None) == Device("tpu", "v4-16", 4)
    assert declared_device(None, "H100:8") == Device("gpu", "H100", 8)
    assert declared_device(None, None) is None
    with pytest.raises(InvalidRequest, match="--tpu v5p-8 or --gpu H100:8, not both"):
        declared_device("v5p-8", "H100:8")
    for text in ("", "8", "H100", "H100:0", "H100:1025", ":8", "H100:8:2", "H 100:8"):
        with pytest.raises(InvalidRequest, match=r"write TYPE:N with N from 1 to 1024, e\.g\. H100:8"):
            declared_device(None, text)
    with pytest.raises(InvalidRequest, match="--tpu 'v5q-8'"):
        declared_device("v5q-8", None)


def test_gangs_find_declared_hosts_and_a_slice_is_named_where_it_has_several() -> None:
    tpu = declared_device("v4-16", None)
    assert device_attributes(tpu, "rack", 1, "w") == {
        "device-type": "tpu", "device-variant": "v4-16", "tpu-name": "rack", "tpu-worker-id": "1",
    }  # fmt: skip
    gpu = declared_device(None, "H100:8")
    assert device_attributes(gpu, "rack", None, "w") == {
        "device-type": "gpu", "device-variant": "H100", "pool": "rack",
    }  # fmt: skip
    assert device_attributes(declared_device("v5p-8", None), None, None, "w")["tpu-name"] == "w", "a slice of its own"
    assert device_attributes(None, None, None, "w") == {}
    with pytest.raises(InvalidRequest, match="a slice of it has 2 hosts; give --slice NAME"):
        device_attributes(tpu, None, None, "w")
    with pytest.raises(InvalidRequest, match="--slice-index 2: a slice of v4-16 has hosts 0 to 1"):
        device_attributes(tpu, "rack", 2, "w")
    with pytest.raises(InvalidRequest, match="--slice-index 0 needs --slice NAME"):
        device_attributes(None, None, 0, "w")
