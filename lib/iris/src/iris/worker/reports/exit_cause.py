"""Classifies a command's failure from the exit code, the kernel's counters and the end of stderr.

Without evidence for another cause, a failure is the user's.
"""

import re
from collections.abc import Callable
from typing import Final

from iris.domain.states import FailureKind
from iris.worker.limits.plan import MEMORY
from iris.worker.processes import Exit

DEVICE_EXIT_CODE: Final = 86
"""The exit code with which a command can report that its accelerator is broken or in use."""

TAIL_BYTES: Final = 16 * 1024
"""Number of last bytes of stderr to search for messages of drivers."""

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


# What a member prints whose partner in a collective operation has ended or does not answer.
_PEER_WORDS: Final = re.compile(
    rb"PollForError|peer closed|Connection (?:closed|reset) by peer|remote process exited"
    rb"|tasks are unhealthy|heartbeat timeout",
    re.IGNORECASE,
)
_SIGSEGV: Final = 11


ExitCause = tuple[FailureKind, str]
"""The kind of failure, and the reason; the reason is empty if the exit status alone explains the end."""


def classify_exit(
    exit: Exit,
    stderr_tail: bytes,
    has_accelerator: bool,
    was_out_of_memory: Callable[[], bool],
    is_member: bool = False,
) -> ExitCause:
    """Return the kind of a command's failure, and the reason.

    Args:
        exit: The command's end.
        stderr_tail: The last TAIL_BYTES of its stderr.
        has_accelerator: Whether its messages about devices are evidence.
        was_out_of_memory: Claims one of the kernel's out-of-memory kills; called only if the command was killed for an
            unknown reason.
        is_member: Whether the command is a gang's member, whose failure may be another's.
    """
    if exit.breach is not None:
        return (FailureKind.OOM if exit.breach.what == MEMORY else FailureKind.USER), exit.breach.text
    if not exit.has_evidence and (exit.signal == _SIGKILL or exit.code == _SHELL_KILLED) and was_out_of_memory():
        return FailureKind.OOM, "out of memory: the kernel killed it to free memory"
    if has_accelerator:
        if exit.code == DEVICE_EXIT_CODE:
            return FailureKind.DEVICE, f"device error: the command exited with code {DEVICE_EXIT_CODE}"
        found = _DEVICE_WORDS.search(stderr_tail)
        if found is not None:
            begin = stderr_tail.rfind(b"\n", 0, found.start()) + 1
            end = stderr_tail.find(b"\n", found.end())
            line = stderr_tail[begin : end if end >= 0 else len(stderr_tail)].decode(errors="replace").strip()
            return FailureKind.DEVICE, f"device error: {line[:300]}"
    if is_member and _is_peers_fault(exit, stderr_tail):
        return FailureKind.PEER, ""
    return FailureKind.USER, ""


def _is_peers_fault(exit: Exit, stderr_tail: bytes) -> bool:
    """Return whether a member ended like one whose partner is gone: by its words, or by a crash in libtpu."""
    has_crashed = exit.signal == _SIGSEGV or exit.code == 128 + _SIGSEGV
    return bool(_PEER_WORDS.search(stderr_tail)) or (has_crashed and b"libtpu" in stderr_tail)
