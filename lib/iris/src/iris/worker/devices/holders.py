"""Finds the processes that use an accelerator."""

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from iris.worker.devices.found import Chip

PROC: Final = Path("/proc")
LIBTPU_LOCK: Final = Path("/tmp/libtpu_lockfile")

Holders = Callable[[Collection[Chip]], Mapping[str, str]]
"""Returns, by device file, a process that uses the device, e.g. "process 12 (python)"."""


def open_in(paths: Collection[str], proc: Path = PROC) -> dict[str, str]:
    """Return a process that has each file open; files that no process has open are missing.

    Only root sees the files of other users' processes.

    Args:
        paths: The files.
        proc: The mount point of procfs.
    """
    found: dict[str, str] = {}
    for process in _processes(proc):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            for entry in os.scandir(process / "fd"):
                with contextlib.suppress(OSError):
                    target = os.readlink(entry.path)
                    if target in paths:
                        found.setdefault(target, f"process {process.name} ({_name(process)})")
    return found


def tpu_holders(chips: Collection[Chip]) -> dict[str, str]:
    """Return the processes that have the device files of TPU chips open."""
    return open_in({chip.node for chip in chips})


def gpu_holders(chips: Collection[Chip]) -> dict[str, str]:
    """Return the processes that compute on GPUs according to NVML; without NVML nothing is known.

    Daemons like nvidia-persistenced have the device files open all the time, so that these prove nothing.
    """
    try:
        import pynvml
    except ImportError:
        return {}
    found = {}
    for chip in chips:
        with contextlib.suppress(pynvml.NVMLError):
            by_index = chip.name.isdecimal()
            find = pynvml.nvmlDeviceGetHandleByIndex if by_index else pynvml.nvmlDeviceGetHandleByUUID
            handle = find(int(chip.name) if by_index else chip.name)
            for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
                found[chip.node] = f"process {process.pid} ({_name(PROC / str(process.pid))})"
    return found


def remove_stale_lock(lock: Path = LIBTPU_LOCK, proc: Path = PROC) -> None:
    """Remove libtpu's lock file if no process has it open: its owner died, and another user could not open it."""
    if lock.exists() and not open_in({str(lock)}, proc):
        with contextlib.suppress(OSError):
            lock.unlink()


def _processes(proc: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for entry in os.scandir(proc):
            if entry.name.isdecimal():
                yield Path(entry.path)


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return "unknown"
