"""Published peak rates of accelerator chips, by the names used in jobs and in JAX.

Dense rates from the vendors' data sheets. V100 and T4 have no bf16 and are listed with their fp16 rate.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

TPU_CHIP_FLOPS: Mapping[str, float] = MappingProxyType(
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
"""bf16 FLOP/s of one chip, by generation."""

GPU_FLOPS: Mapping[str, float] = MappingProxyType(
    {
        "T4": 65e12,
        "L4": 121e12,
        "A10": 125e12,
        "A10G": 70e12,
        "V100": 125e12,
        "L40S": 362e12,
        "A100": 312e12,
        "A100-40G": 312e12,
        "A100-80G": 312e12,
        "H100": 989e12,
        "H200": 989e12,
        "GH200": 989e12,
        "B100": 1750e12,
        "B200": 2250e12,
        "GB200": 2500e12,
    }
)
"""bf16 FLOP/s of one GPU, by type."""

_FP32_FLOPS: Final[Mapping[str, float]] = {
    "T4": 8.1e12,
    "L4": 30.3e12,
    "A10": 31.2e12,
    "A10G": 35e12,
    "V100": 15.7e12,
    "L40S": 91.6e12,
    "A100": 19.5e12,
    "H100": 67e12,
    "H200": 67e12,
    "GH200": 67e12,
    "B100": 60e12,
    "B200": 80e12,
    "GB200": 80e12,
}
# Chips whose rate doubles with 8 bits.
_INT8: Final = {"T4", "L4", "A10", "A10G", "L40S", "A100", "H100", "H200", "GH200", "B100", "B200", "GB200"} | {
    "v5litepod",
    "v5e",
    "v5p",
    "v6e",
}
_FP8: Final = {"L4", "L40S", "H100", "H200", "GH200", "B100", "B200", "GB200"}

# As `jax.Device.device_kind` has them, longest first: "TPU v5 lite" is not a "TPU v5".
_JAX_TPU_KINDS: Final = (
    ("tpu v2", "v2"),
    ("tpu v3", "v3"),
    ("tpu v4", "v4"),
    ("tpu v5 lite", "v5litepod"),
    ("tpu v5e", "v5litepod"),
    ("tpu v5p", "v5p"),
    ("tpu v5", "v5p"),
    ("tpu v6 lite", "v6e"),
    ("tpu v6e", "v6e"),
)


def device_flops(device_type: str, dtype: str = "bf16") -> float | None:
    """Return the peak dense FLOP/s of one chip; None if no rate is published.

    Args:
        device_type: A GPU ("H100") or a TPU type or generation ("v5p-8", "v5p").
        dtype: "bf16", "fp16", "fp32", "fp8" or "int8", or their long names.
    """
    generation = device_type.lower().partition("-")[0]
    if generation in TPU_CHIP_FLOPS:
        return _rate(generation, TPU_CHIP_FLOPS[generation], dtype)
    name = device_type.upper()
    if name not in GPU_FLOPS:
        return None
    return _rate(name.partition("-")[0], GPU_FLOPS[name], dtype)


def device_flops_for_jax_device(device_kind: str, dtype: str = "bf16") -> float | None:
    """Return the peak dense FLOP/s of one JAX device; None for an unknown one, such as a CPU.

    Args:
        device_kind: `jax.devices()[0].device_kind`, e.g. "TPU v5 lite" or "NVIDIA H100 80GB HBM3".
        dtype: As in `device_flops`.
    """
    kind = device_kind.lower()
    for prefix, generation in _JAX_TPU_KINDS:
        if kind.startswith(prefix):
            return device_flops(generation, dtype)
    words = set(re.split(r"[^A-Z0-9]+", device_kind.upper()))
    return next((device_flops(name, dtype) for name in GPU_FLOPS if name in words), None)


def _rate(chip: str, bf16: float, dtype: str) -> float | None:
    match dtype.lower():
        case "bf16" | "bfloat16" | "fp16" | "float16":
            return bf16
        case "fp32" | "float32":
            return _FP32_FLOPS.get(chip)
        case "int8" if chip in _INT8:
            return 2 * bf16
        case "fp8" if chip in _FP8:
            return 2 * bf16
    return None
