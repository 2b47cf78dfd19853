"""The table of TPU slices: the chips, hosts and VMs of each accelerator type.

The numbers come from Google's Cloud TPU documentation ("System architecture", one page per generation). In names up to
v5p the number counts TensorCores, two per chip; in v5litepod and v6e it counts chips.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from rigging.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class TpuTopologyInfo:
    """The shape of one TPU slice.

    Args:
        name: The accelerator type in GCP's spelling, e.g. "v5litepod-16".
        chip_count: Chips of the whole slice.
        host_count: Physical machines. In slices of 16 and more, a v5e or v6e machine of 8 chips runs two VMs.
        vm_count: Virtual machines, each of which runs one worker.
        chips_per_vm: Chips that one VM sees.
    """

    name: str
    chip_count: int
    host_count: int
    vm_count: int
    chips_per_vm: int


@dataclass(frozen=True, slots=True)
class TpuGeneration:
    """Properties shared by all slices of a TPU generation.

    Args:
        name: The name used in its types, e.g. "v5litepod".
        cores_per_chip: TensorCores per chip.
        runtime_version: The VM software that GCP recommends for PyTorch and JAX.
        vm_cpus: Virtual CPUs of one VM, by the number of its chips.
    """

    name: str
    cores_per_chip: int
    runtime_version: str
    vm_cpus: Mapping[int, int]


def _by_cores(generation: str, core_counts: Iterable[int]) -> Iterator[TpuTopologyInfo]:
    """Return a generation named by cores: two cores per chip, four chips per VM, one VM per host."""
    for cores in core_counts:
        vms = cores // 8
        yield TpuTopologyInfo(f"{generation}-{cores}", cores // 2, vms, vms, 4)


def _by_chips(generation: str) -> Iterator[TpuTopologyInfo]:
    """Return a generation named by chips: up to 8 on one VM; larger slices have four chips per VM and two VMs
    per host.
    """
    for chips in (1, 4, 8):
        yield TpuTopologyInfo(f"{generation}-{chips}", chips, 1, 1, chips)
    for chips in (16, 32, 64, 128, 256):
        yield TpuTopologyInfo(f"{generation}-{chips}", chips, chips // 8, chips // 4, 4)


_V5P_CORES = (8, 16, 32, 64, *range(128, 2049, 128), 3072, 4096, 6144, 8192, 12288)

TPU_TOPOLOGIES: list[TpuTopologyInfo] = [
    *_by_cores("v2", (8, 32, 128, 256, 512)),
    *_by_cores("v3", (8, 32, 64, 128, 256, 512, 1024, 2048)),
    *_by_cores("v4", (8, 16, 32, 64, 128, 256, 384, 512, 1024, 1536, 2048, 4096)),
    *_by_chips("v5litepod"),
    # Not a type of Google's: half of a VM with four chips.
    TpuTopologyInfo("v5litepod-2", 2, 1, 1, 2),
    *_by_cores("v5p", _V5P_CORES),
    *_by_chips("v6e"),
]

_BY_NAME = {topology.name: topology for topology in TPU_TOPOLOGIES}

# Runtime versions: "TPU software versions"; CPUs: the generations' "System architecture" pages.
_UBUNTU = "tpu-ubuntu2204-base"
TPU_GENERATIONS: Mapping[str, TpuGeneration] = MappingProxyType(
    {
        generation.name: generation
        for generation in (
            TpuGeneration("v2", 2, _UBUNTU, {4: 96}),
            TpuGeneration("v3", 2, _UBUNTU, {4: 96}),
            TpuGeneration("v4", 2, _UBUNTU, {4: 240}),
            TpuGeneration("v5litepod", 1, "v2-alpha-tpuv5-lite", {1: 24, 2: 56, 4: 112, 8: 224}),
            TpuGeneration("v5p", 2, "v2-alpha-tpuv5", {4: 208}),
            TpuGeneration("v6e", 1, "v2-alpha-tpuv6e", {1: 44, 4: 180, 8: 180}),
        )
    }
)


def get_tpu_topology(tpu_type: str) -> TpuTopologyInfo:
    """Return the shape of the TPU slice called `tpu_type`.

    Raises:
        InvalidRequest: The type is unknown. The message names it and the nearest valid types.
    """
    topology = _BY_NAME.get(tpu_type)
    if topology is not None:
        return topology
    raise InvalidRequest(f"unknown TPU type {tpu_type!r}; {_suggest(tpu_type)}")


def get_tpu_generation(tpu_type: str) -> TpuGeneration:
    """Return the generation of the TPU slice called `tpu_type`. Raise InvalidRequest for an unknown type."""
    return TPU_GENERATIONS[get_tpu_topology(tpu_type).name.rpartition("-")[0]]


def _suggest(tpu_type: str) -> str:
    # "v5e" is what people say and "v5litepod" what GCP calls it, which is too far for an edit distance.
    guess = str(tpu_type).strip().lower().replace("v5e-", "v5litepod-")
    generation = guess.rpartition("-")[0]
    siblings = [name for name in _BY_NAME if name.rpartition("-")[0] == generation]
    if guess in _BY_NAME:
        return f"did you mean {guess!r}?"
    if siblings:
        return f"valid {generation} types: {', '.join(siblings)}"
    nearest = difflib.get_close_matches(guess, _BY_NAME, n=3, cutoff=0.5)
    if nearest:
        return f"nearest valid types: {', '.join(nearest)}"
    generations = dict.fromkeys(name.rpartition("-")[0] for name in _BY_NAME)
    return f"valid types are {', '.join(generations)} followed by -N, e.g. v4-8, v5litepod-16, v5p-8, v6e-4"
