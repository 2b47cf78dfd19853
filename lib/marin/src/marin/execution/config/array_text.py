"""Short texts that identify arrays, computed at a bounded cost."""

from __future__ import annotations

import hashlib
import sys
from typing import Any, Final

CONFIG_BYTES: Final = 1 << 20
"""Maximum number of bytes to read of an array in a config, because thousands of steps may contain it."""

CONSTANT_BYTES: Final = 64 << 20
"""Maximum number of bytes to read of a constant, once per function and plan."""

_BLOCKS: Final = 64
_EXACT_KINDS: Final = "biuSUmM"
_LONGEST_NUMBER: Final = {"f": 8, "c": 16}


def is_array(value: Any) -> bool:
    """Return whether a value is a numpy array, which is possible only if numpy has been imported."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def array_text(value: Any, most_bytes: int) -> str | None:
    """Return a numpy array's type, shape and content digest: `float64[3, 4] 0a1b2c3d4e5f6071`.

    Args:
        value: The array.
        most_bytes: For a larger array, hash only blocks of this total size, evenly spaced from first to last; the text
            mentions that.

    Returns:
        None for arrays of objects, records or `longdouble`, whose bytes do not determine the value.
    """
    kind = value.dtype
    if kind.hasobject or kind.fields is not None or kind.itemsize > _LONGEST_NUMBER.get(kind.kind, kind.itemsize):
        return None
    digest = hashlib.blake2b(digest_size=8)
    # Of an array that is not contiguous, such as a column, only the hashed items are copied.
    items = value.reshape(-1) if value.flags.c_contiguous else value.flat
    is_whole = value.nbytes <= most_bytes
    if is_whole:
        digest.update(items[:].tobytes())
    else:
        block = max(1, most_bytes // (_BLOCKS * kind.itemsize))
        for index in range(_BLOCKS):
            start = (value.size - block) * index // (_BLOCKS - 1)
            digest.update(items[start : start + block].tobytes())
    return f"{kind}{list(value.shape)} {digest.hexdigest()}{'' if is_whole else ' of a sample'}"


def with_digest(text: str, value: Any) -> str:
    """Return the text of an array, with a digest if numpy shortens or rounds it."""
    if value.dtype.kind in _EXACT_KINDS and "..." not in text:
        return text
    digest = array_text(value, CONFIG_BYTES)
    return text if digest is None else f"{text} {digest}"
