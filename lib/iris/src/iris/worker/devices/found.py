"""Finds the accelerators of this host: TPU chips by their device files, GPUs also by NVML."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iris.domain.resources import Device
from rigging.errors import InvalidRequest

DEV: Final = Path("/dev")
_TPU_NODES: Final = (("", re.compile(r"accel[0-9]+")), ("vfio", re.compile(r"[0-9]+")))
_GPU_NODES: Final = (("", re.compile(r"nvidia[0-9]+")),)
_AMD_NODE: Final = "kfd"
_NO_NVML: Final = "install nvidia-ml-py (`marin-iris[gpu]`) on the host"


@dataclass(frozen=True, slots=True)
class Chip:
    """One accelerator.

    Args:
        name: Its name in variables: the index of a TPU chip, the UUID or index of a GPU.
        node: Its device file.
    """

    name: str
    node: str


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, according to NVML.

    Args:
        uuid: Its UUID.
        model: E.g. "NVIDIA H100 80GB HBM3".
        minor: The number of its device file.
    """

    uuid: str
    model: str
    minor: int


def find_chips(kind: str, dev: Path = DEV) -> tuple[Chip, ...]:
    """Return the accelerators of a kind ("tpu" or "gpu") that have device files, in order of their numbers.

    Args:
        kind: Accelerators of v5e and later have files in `dev`/vfio, earlier TPUs `dev`/accel*, GPUs `dev`/nvidia*.
        dev: The directory of device files.
    """
    for folder, pattern in _TPU_NODES if kind == "tpu" else _GPU_NODES:
        place = dev / folder
        names = [path.name for path in place.iterdir()] if place.is_dir() else []
        found = sorted((int(re.sub("[^0-9]", "", name)), name) for name in names if pattern.fullmatch(name))
        if found:
            return tuple(Chip(str(index), str(place / name)) for index, (_, name) in enumerate(found))
    return ()


def read_nvml() -> tuple[Gpu, ...]:
    """Return the GPUs that NVML finds, in its order. Raise OSError without the library or a driver."""
    try:
        import pynvml
    except ImportError:
        raise OSError(_NO_NVML) from None
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return tuple(
            Gpu(
                pynvml.nvmlDeviceGetUUID(handle),
                pynvml.nvmlDeviceGetName(handle),
                pynvml.nvmlDeviceGetMinorNumber(handle),
            )
            for handle in handles
        )
    except pynvml.NVMLError as error:
        raise OSError(f"NVML: {error}") from error


def check_devices(
    declared: Device | None, dev: Path = DEV, nvml: Callable[[], tuple[Gpu, ...]] = read_nvml
) -> tuple[Chip, ...]:
    """Return the accelerators that a worker offers, named for variables.

    Args:
        declared: The accelerators of the host, as its worker was told; None for none.
        dev: The directory of device files.
        nvml: Returns the GPUs, or raises OSError; called only if the host has device files of GPUs.

    Raises:
        InvalidRequest: The host has fewer accelerators, GPUs of another model, or GPUs of AMD.
    """
    if declared is None:
        return ()
    found = find_chips(declared.kind, dev)
    option = f"--tpu {declared.variant}" if declared.kind == "tpu" else f"--gpu {declared.variant}:{declared.count}"
    if declared.kind == "gpu" and not found and (dev / _AMD_NODE).exists():
        raise InvalidRequest(
            f"{option}: this host has AMD GPUs ({dev / _AMD_NODE}), and iris allots GPUs of NVIDIA and TPUs only: "
            "leave the option out, and let one job at a time use the host"
        )
    if len(found) < declared.count:
        files = f"{dev}/accel* and {dev}/vfio/*" if declared.kind == "tpu" else f"{dev}/nvidia*"
        right = f", or --gpu {declared.variant}:{len(found)}" if declared.kind == "gpu" and found else ""
        raise InvalidRequest(
            f"{option} declares {declared.count} {declared.kind.upper()} chips, and this host has {len(found)} "
            f"({files}): repair its driver, or leave the option out{right}"
        )
    if declared.kind == "gpu":
        found = _named(declared, found, nvml)
    return found[: declared.count]


def _named(declared: Device, found: tuple[Chip, ...], nvml: Callable[[], tuple[Gpu, ...]]) -> tuple[Chip, ...]:
    """Return the GPUs with UUIDs; with indexes if NVML does not answer."""
    try:
        gpus = nvml()
    except OSError:
        return found
    other = [gpu.model for gpu in gpus if not _words(declared.variant) & _words(gpu.model)]
    if other:
        raise InvalidRequest(
            f"--gpu {declared.variant}:{declared.count} declares {declared.variant}, and this host has {other[0]}: "
            "name that model"
        )
    uuids = {gpu.minor: gpu.uuid for gpu in gpus}
    numbers = {chip: int(re.sub("[^0-9]", "", Path(chip.node).name)) for chip in found}
    return tuple(Chip(uuids.get(number, chip.name), chip.node) for chip, number in numbers.items())


def _words(model: str) -> set[str]:
    return set(re.findall("[a-z0-9]+", model.casefold())) - {"nvidia"}
