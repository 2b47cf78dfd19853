"""Planning without the garbage collector, which would look through the plan again and again and find nothing."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Let the cycle collector rest within the block, in all threads of the process.

    For code of ours that makes many objects to keep and no garbage; never around a step's function. Of blocks that
    overlap, the first that began ends the pause.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
