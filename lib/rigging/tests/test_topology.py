import pytest

from rigging.errors import InvalidRequest
from rigging.topology import TPU_TOPOLOGIES, TpuTopologyInfo, get_tpu_generation, get_tpu_topology


@pytest.mark.parametrize(
    ("name", "chips", "hosts", "vms", "chips_per_vm"),
    [
        ("v3-32", 16, 4, 4, 4),
        ("v4-8", 4, 1, 1, 4),
        ("v5litepod-1", 1, 1, 1, 1),
        ("v5litepod-8", 8, 1, 1, 8),
        ("v5litepod-16", 16, 2, 4, 4),
        ("v5litepod-256", 256, 32, 64, 4),
        ("v5p-12288", 6144, 1536, 1536, 4),
        ("v6e-8", 8, 1, 1, 8),
        ("v6e-256", 256, 32, 64, 4),
    ],
)
def test_known_slices(name: str, chips: int, hosts: int, vms: int, chips_per_vm: int) -> None:
    assert get_tpu_topology(name) == TpuTopologyInfo(name, chips, hosts, vms, chips_per_vm)


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("v5e-16", "v5litepod-16"),
        ("V4-8", "v4-8"),
        ("v4-7", "v4-8, v4-16"),
        ("v5litpod-16", "v5litepod-16"),
        ("h100", "v4-8, v5litepod-16"),
        ("", "v4-8"),
    ],
)
def test_unknown_type_names_the_value_and_what_is_valid(wrong: str, hint: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        get_tpu_topology(wrong)
    assert repr(wrong) in str(caught.value)
    assert hint in str(caught.value)


def test_the_table_is_consistent_and_each_type_has_a_generation_that_knows_its_vms() -> None:
    assert len({t.name for t in TPU_TOPOLOGIES}) == len(TPU_TOPOLOGIES)
    for topology in TPU_TOPOLOGIES:
        assert topology.vm_count * topology.chips_per_vm == topology.chip_count, topology
        assert 1 <= topology.host_count <= topology.vm_count, topology
        generation = get_tpu_generation(topology.name)
        assert generation.vm_cpus[topology.chips_per_vm] >= 24
        assert int(topology.name.rpartition("-")[2]) == topology.chip_count * generation.cores_per_chip
        assert generation.runtime_version
