"""Whose fault the end of a command was, by what can be seen of it: exit code, the kernel's counters, its last words.

Nothing is guessed: without evidence a bad end is the user's.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from iris.domain.states import FailureKind
from iris.worker.runtime.running import Exit

DEVICE_EXIT_CODE: Final = 86
"""A command that finds its accelerator broken or held by somebody else may say so by this exit code."""

TAIL_BYTES: Final = 16 * 1024
"""So much of the end of stderr is searched for the words of drivers."""

_SIGKILL: Final = 9
_SHELL_KILLED: Final = 128 + _SIGKILL

# What libtpu, the CUDA runtime and JAX and PyTorch on top of them print when the device is at fault.
_DEVICE_WORDS: Final = re.compile(
    rb"the TPU is already in use by"
    rb"|libtpu\.so[^\n]{0,40} already in use by another process"
    rb"|/dev/(?:accel|vfio)[^\n]{0,80}(?:Device or resource busy|Input/output error)"
    rb"|CUDA-capable device\(s\) is/are busy or unavailable"
    rb"|all CUDA-capable devices are busy or unavailable"
    rb"|uncorrectable (?:NVLink|ECC) error"
    rb"|CUDA_ERROR_(?:ECC_UNCORRECTABLE|DEVICE_UNAVAILABLE|NVLINK_UNCORRECTABLE|SYSTEM_NOT_READY)"
    rb"|GPU is lost|has fallen off the bus",
    re.IGNORECASE,
)

Verdict = tuple[FailureKind, str]
"""Whose fault, and why in words; empty words: the end speaks for itself."""


def judge(exit: Exit, stderr_tail: bytes, has_accelerator: bool, was_out_of_memory: Callable[[], bool]) -> Verdict:
    """Whose fault a bad end was.

    Args:
        stderr_tail: The last TAIL_BYTES of what it wrote to stderr.
        has_accelerator: Only then its words about devices count.
        was_out_of_memory: Asked only when it was killed; claims one of the kernel's kills.
    """
    if (exit.signal == _SIGKILL or exit.code == _SHELL_KILLED) and was_out_of_memory():
        return FailureKind.OOM, "out of memory: the kernel killed it to free memory"
    if has_accelerator:
        if exit.code == DEVICE_EXIT_CODE:
            return FailureKind.DEVICE, f"device error: it ended with exit code {DEVICE_EXIT_CODE}"
        found = _DEVICE_WORDS.search(stderr_tail)
        if found is not None:
            begin = stderr_tail.rfind(b"\n", 0, found.start()) + 1
            end = stderr_tail.find(b"\n", found.end())
            line = stderr_tail[begin : end if end >= 0 else len(stderr_tail)].decode(errors="replace").strip()
            return FailureKind.DEVICE, f"device error: {line[:300]}"
    return FailureKind.USER, ""


class OomKills:
    """The kernel's count of processes that it killed for lack of memory; each is claimed by one attempt at most.

    Args:
        files: Counters to read: those of the worker's control groups, and the machine's; see `oom_counters`.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = [path for path in files if _count(path) is not None]
        self._seen = {path: _count(path) or 0 for path in self._files}

    def claim(self) -> bool:
        """Whether the kernel has killed a process that no attempt has claimed yet."""
        risen = [path for path in self._files if (_count(path) or 0) > self._seen[path]]
        for path in risen:
            # One kill shows in the group's counter and in those around it.
            self._seen[path] += 1
        return bool(risen)


def oom_counters(root: Path, own: str) -> list[Path]:
    """Where the kernel counts its kills.

    Args:
        root: Where the cgroup filesystems are mounted. own: The content of /proc/self/cgroup; versions 1 and 2.
    """
    found: list[Path] = []
    for line in own.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            found.append(root / path.lstrip("/") / "memory.events")
        elif "memory" in controllers.split(","):
            found.append(root / "memory" / path.lstrip("/") / "memory.oom_control")
    return found


def _count(path: Path) -> int | None:
    """The number behind the word oom_kill; None when it cannot be read."""
    try:
        text = path.read_text()
    except OSError:
        return None
    for line in text.splitlines():
        word, _, number = line.partition(" ")
        if word == "oom_kill" and number.strip().isdigit():
            return int(number)
    return None
