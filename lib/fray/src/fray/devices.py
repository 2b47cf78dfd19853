"""Devices of jobs: the configurations and the published peak rates of their chips.

Field names, order and defaults are part of stored versions (a device config inside a versioned value is
encoded as its fields), so a new field must keep its default out of the encoding.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

from rigging.errors import InvalidRequest
from rigging.topology import get_tpu_topology

DeviceKind: TypeAlias = Literal["cpu", "gpu", "tpu"]

# Peak dense bf16 FLOP/s of one chip, from the vendors' data sheets (fp16 where a chip has no bf16: V100, T4).
_TPU_CHIP_FLOPS: Mapping[str, float] = MappingProxyType(
    {
        "v2": 46e12,
        "v3": 123e12,
        "v4": 275e12,
        "v5litepod": 197e12,
        "v5e": 197e12,
        "v5p": 459e12,
        "v6e": 918e12,
    }
)
_GPU_FLOPS: Mapping[str, float] = MappingProxyType(
    {
        "T4": 65e12,
        "L4": 121e12,
        "A10": 125e12,
        "A10G": 70e12,
        "V100": 125e12,
        "L40S": 362e12,
        "A100": 312e12,
        "H100": 989e12,
        "H200": 989e12,
        "GH200": 989e12,
        "B200": 2250e12,
        "GB200": 2500e12,
    }
)


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

    def chip_flops(self) -> float:
        """Peak FLOP/s of one accelerator chip: there is none, so 0."""
        return 0.0

    def device_flops(self) -> float:
        """Peak FLOP/s of the accelerators: there are none, so 0."""
        return 0.0

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

    def chip_flops(self) -> float:
        """Peak dense bf16 FLOP/s of one GPU; InvalidRequest for a type whose rate is not known."""
        flops = _GPU_FLOPS.get(self.variant.upper())
        if flops is None:
            raise InvalidRequest(
                f"GPU type {self.variant!r}: peak FLOP/s unknown; known types: {', '.join(_GPU_FLOPS)}"
            )
        return flops

    def device_flops(self) -> float:
        """Peak dense bf16 FLOP/s of all GPUs of one replica."""
        return self.chip_flops() * self.count

    def default_env_vars(self) -> dict[str, str]:
        """None: the frameworks find the GPUs by themselves."""
        return {}


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
        """Chips of one whole slice, however many hosts it spans; an unknown variant raises."""
        return get_tpu_topology(self.variant).chip_count

    def chip_flops(self) -> float:
        """Peak dense bf16 FLOP/s of one chip; InvalidRequest for a generation whose rate is not known."""
        generation = self.variant.partition("-")[0]
        flops = _TPU_CHIP_FLOPS.get(generation)
        if flops is None:
            known = ", ".join(_TPU_CHIP_FLOPS)
            raise InvalidRequest(f"TPU type {self.variant!r}: peak FLOP/s unknown; known generations: {known}")
        return flops

    def device_flops(self) -> float:
        """Peak dense bf16 FLOP/s of one whole slice."""
        return self.chip_flops() * self.chip_count()

    def default_env_vars(self) -> dict[str, str]:
        """Variables that make JAX and PyTorch/XLA use the TPU, and fail when it is missing rather than fall back."""
        return {"JAX_PLATFORMS": "tpu,cpu", "PJRT_DEVICE": "TPU"}


DeviceConfig: TypeAlias = CpuConfig | GpuConfig | TpuConfig
