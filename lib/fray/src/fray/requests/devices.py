"""Devices of jobs.

Field names, order and defaults are part of stored versions (a device config inside a versioned value is
encoded as its fields), so a new field must keep its default out of the encoding.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NoReturn, TypeAlias

from fray.device_flops import GPU_FLOPS, TPU_CHIP_FLOPS, device_flops
from rigging.errors import InvalidRequest
from rigging.topology import TPU_TOPOLOGIES, get_tpu_topology

DeviceKind: TypeAlias = Literal["cpu", "gpu", "tpu"]

CPU_FLOPS: Final = 1e11
"""FLOP/s that a job without accelerators counts as having."""

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
    """No accelerator; the job runs on its host's processors."""

    kind: DeviceKind = "cpu"
    variant: str = "cpu"

    def __post_init__(self) -> None:
        _check_kind("CpuConfig", self.kind, "cpu")

    def chip_count(self) -> int:
        """Accelerator chips: none."""
        return 0

    def device_flops(self, dtype: str = "bf16") -> NoReturn:
        """Raise NotImplementedError: there is no chip."""
        raise NotImplementedError(f"CpuConfig: a CPU job has no accelerator whose {dtype} FLOP/s could be told")

    def total_flops(self, dtype: str = "bf16") -> float:  # noqa: ARG002 - as of accelerators
        """FLOP/s that a job without accelerators counts as having."""
        return CPU_FLOPS

    def default_env_vars(self) -> dict[str, str]:
        """Variables that keep JAX from looking for an accelerator the job did not ask for."""
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
        """GPUs of one replica."""
        return self.count

    def device_flops(self, dtype: str = "bf16") -> float:
        """Peak dense FLOP/s of one GPU; InvalidRequest for a type whose rate is not known."""
        flops = device_flops(self.variant, dtype) if self.variant.upper() in GPU_FLOPS else None
        if flops is None:
            raise InvalidRequest(
                f"GPU type {self.variant!r}: peak {dtype} FLOP/s unknown; known types: {', '.join(GPU_FLOPS)}"
            )
        return flops

    def total_flops(self, dtype: str = "bf16") -> float:
        """Peak dense FLOP/s of all GPUs of one replica."""
        return self.device_flops(dtype) * self.count

    def default_env_vars(self) -> dict[str, str]:
        """Variables that let JAX choose the platform by itself."""
        return {"JAX_PLATFORMS": ""}


@dataclass(frozen=True, slots=True)
class TpuConfig:
    """One TPU slice type, e.g. `TpuConfig("v5p-8")`; `topology` pins its shape (e.g. "2x2x1") where that matters."""

    variant: str
    kind: DeviceKind = "tpu"
    topology: str | None = None

    def __post_init__(self) -> None:
        _check_kind("TpuConfig", self.kind, "tpu")
        if not self.variant:
            raise InvalidRequest("TpuConfig: variant must name a TPU type, e.g. 'v5p-8'")

    def chip_count(self) -> int:
        """Chips of one VM of the slice; an unknown variant raises."""
        return get_tpu_topology(self.variant).chips_per_vm

    def vm_count(self) -> int:
        """VMs of one whole slice; an unknown variant raises."""
        return get_tpu_topology(self.variant).vm_count

    def device_flops(self, dtype: str = "bf16") -> float:
        """Peak dense FLOP/s of one chip; InvalidRequest for a generation whose rate is not known."""
        flops = device_flops(self.generation, dtype) if self.generation in TPU_CHIP_FLOPS else None
        if flops is None:
            known = ", ".join(TPU_CHIP_FLOPS)
            raise InvalidRequest(f"TPU type {self.variant!r}: peak {dtype} FLOP/s unknown; known generations: {known}")
        return flops

    def total_flops(self, dtype: str = "bf16") -> float:
        """Peak dense FLOP/s of the chips of one VM."""
        return self.device_flops(dtype) * self.chip_count()

    def default_env_vars(self) -> dict[str, str]:
        """Variables that let JAX choose the platform by itself, and with which TPU kernels get the memory they need."""
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
