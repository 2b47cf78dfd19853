"""The devices of jobs.

Field names, order and defaults are part of stored versions, because a versioned device config is encoded as its fields.
Omit a new field from the encoding while it has its default.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NoReturn, TypeAlias

from fray.device_flops import GPU_FLOPS, TPU_CHIP_FLOPS, device_flops
from rigging.errors import InvalidRequest
from rigging.topology import TPU_TOPOLOGIES, get_tpu_topology

DeviceKind: TypeAlias = Literal["cpu", "gpu", "tpu"]

CPU_FLOPS: Final = 1e11
"""Nominal FLOP/s of a job without accelerators."""

# More VMEM for a kernel than the compiler gives by itself, by generation.
_TPU_SCOPED_VMEM_KIB: Mapping[str, int] = {"v5e": 50000, "v5litepod": 50000, "v5p": 50000, "v6e": 98304}

if TYPE_CHECKING:
    GpuType: TypeAlias = str
    TpuType: TypeAlias = str
else:
    GpuType = Literal[tuple(GPU_FLOPS)]
    TpuType = Literal[tuple(topology.name for topology in TPU_TOPOLOGIES)]


def _check_kind(owner: str, kind: str, allowed: str) -> None:
    if kind != allowed:
        raise InvalidRequest(f"{owner}: kind must be {allowed!r}, not {kind!r}")


@dataclass(frozen=True, slots=True)
class CpuConfig:
    """No accelerator: the job runs on its host's processors."""

    kind: DeviceKind = "cpu"
    variant: str = "cpu"

    def __post_init__(self) -> None:
        _check_kind("CpuConfig", self.kind, "cpu")

    def chip_count(self) -> int:
        """Return the number of accelerator chips: 0."""
        return 0

    def device_flops(self, dtype: str = "bf16") -> NoReturn:
        """Raise NotImplementedError: there is no accelerator."""
        raise NotImplementedError(f"CpuConfig: a CPU job has no accelerator, so no {dtype} FLOP/s")

    def total_flops(self, dtype: str = "bf16") -> float:  # noqa: ARG002 - as of accelerators
        """Return the nominal FLOP/s of a job without accelerators."""
        return CPU_FLOPS

    def default_env_vars(self) -> dict[str, str]:
        """Return variables that keep JAX from looking for an accelerator."""
        return {"JAX_PLATFORMS": "cpu"}


@dataclass(frozen=True, slots=True)
class GpuConfig:
    """`count` GPUs of one type on each replica's host, e.g. `GpuConfig("H100", count=8)`."""

    variant: str
    kind: DeviceKind = "gpu"
    count: int = 1

    def __post_init__(self) -> None:
        _check_kind("GpuConfig", self.kind, "gpu")
        if not self.variant:
            raise InvalidRequest("GpuConfig: variant must name a GPU type, e.g. 'H100'")
        if self.count < 1:
            raise InvalidRequest(f"GpuConfig {self.variant}: count must be at least 1, not {self.count}")

    def chip_count(self) -> int:
        """Return the number of GPUs of one replica."""
        return self.count

    def device_flops(self, dtype: str = "bf16") -> float:
        """Return the peak dense FLOP/s of one GPU. Raise InvalidRequest for a type with unknown rate."""
        flops = device_flops(self.variant, dtype) if self.variant.upper() in GPU_FLOPS else None
        if flops is None:
            raise InvalidRequest(
                f"GPU type {self.variant!r}: peak {dtype} FLOP/s unknown; known types: {', '.join(GPU_FLOPS)}"
            )
        return flops

    def total_flops(self, dtype: str = "bf16") -> float:
        """Return the peak dense FLOP/s of all GPUs of one replica."""
        return self.device_flops(dtype) * self.count

    def default_env_vars(self) -> dict[str, str]:
        """Return variables that let JAX choose the platform itself."""
        return {"JAX_PLATFORMS": ""}


@dataclass(frozen=True, slots=True)
class TpuConfig:
    """A TPU slice type, e.g. `TpuConfig("v5p-8")`. `topology` pins its shape (e.g. "2x2x1") where that matters."""

    variant: str
    kind: DeviceKind = "tpu"
    topology: str | None = None

    def __post_init__(self) -> None:
        _check_kind("TpuConfig", self.kind, "tpu")
        if not self.variant:
            raise InvalidRequest("TpuConfig: variant must name a TPU type, e.g. 'v5p-8'")

    def chip_count(self) -> int:
        """Return the number of chips of one VM of the slice. Raise for an unknown variant."""
        return get_tpu_topology(self.variant).chips_per_vm

    def vm_count(self) -> int:
        """Return the number of VMs of one slice. Raise for an unknown variant."""
        return get_tpu_topology(self.variant).vm_count

    def device_flops(self, dtype: str = "bf16") -> float:
        """Return the peak dense FLOP/s of one chip. Raise InvalidRequest for a generation with unknown rate."""
        flops = device_flops(self.generation, dtype) if self.generation in TPU_CHIP_FLOPS else None
        if flops is None:
            known = ", ".join(TPU_CHIP_FLOPS)
            raise InvalidRequest(f"TPU type {self.variant!r}: peak {dtype} FLOP/s unknown; known generations: {known}")
        return flops

    def total_flops(self, dtype: str = "bf16") -> float:
        """Return the peak dense FLOP/s of the chips of one VM."""
        return self.device_flops(dtype) * self.chip_count()

    def default_env_vars(self) -> dict[str, str]:
        """Return variables that let JAX choose the platform itself, and that give TPU kernels the memory they need."""
        variables = {"JAX_PLATFORMS": "", "PJRT_DEVICE": "TPU"}
        if self.generation in _TPU_SCOPED_VMEM_KIB:
            limit = _TPU_SCOPED_VMEM_KIB[self.generation]
            variables["LIBTPU_INIT_ARGS"] = f"--xla_tpu_scoped_vmem_limit_kib={limit}"
        return variables

    @property
    def generation(self) -> str:
        """The first part of the variant, e.g. "v5p"."""
        return self.variant.partition("-")[0]


DeviceConfig: TypeAlias = CpuConfig | GpuConfig | TpuConfig
