"""Checks the disk space for logs on the worker, and frees it once the controller has the content."""

import ctypes
import os
from functools import lru_cache
from pathlib import Path
from typing import Final

DEFAULT_LIMIT_BYTES: Final = 1024**3
"""Maximum size of an attempt's log on the worker's disk."""

_KEPT_FREE: Final = 16 * 1024 * 1024
_AMPLE: Final = 1024**3
_SHARE: Final = 20  # of a small file system no more than the twentieth part is kept free
_PUNCH_HOLE: Final = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
_BLOCK: Final = 4096


def is_nearly_full(descriptor: int) -> bool:
    """Return whether the file system of an open file has less free space than is reserved."""
    found = os.fstatvfs(descriptor)
    return found.f_bavail * found.f_frsize < min(_KEPT_FREE, found.f_blocks * found.f_frsize // _SHARE)


def is_short(path: str | Path) -> bool:
    """Return whether the free space of a file's file system is too low to buffer optional data."""
    found = os.statvfs(path)
    return found.f_bavail < found.f_blocks // 2 and found.f_bavail * found.f_frsize < _AMPLE


def stored_bytes(descriptor: int) -> int:
    """Return the bytes that a file uses on the disk, without its holes."""
    return os.fstat(descriptor).st_blocks * 512


def punch(descriptor: int, end: int) -> bool:
    """Release the disk space of a file before `end`, which then reads as zeros. Return False if not supported."""
    end = end // _BLOCK * _BLOCK
    return end <= 0 or _fallocate()(descriptor, _PUNCH_HOLE, 0, end) == 0


@lru_cache(maxsize=1)
def _fallocate() -> "ctypes._NamedFuncPointer":
    function = ctypes.CDLL(None, use_errno=True).fallocate
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return function
