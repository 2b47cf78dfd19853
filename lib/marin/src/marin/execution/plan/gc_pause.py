"""Pause the garbage collector while a plan is made: it would scan the growing plan many times and free nothing."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Context manager: switch off the cycle collector in all threads of the process.

    Use it for executor code that creates many long-lived objects, never around a step's function. If blocks overlap in
    several threads, the end of the first one ends the pause.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if gc.get_freeze_count() == 0:  # else somebody's frozen objects would not stay so
                # Puts what was made among the old objects: looking through it as if it were new would find nothing, and
                # takes a twelfth of a run whose outputs are all there.
                gc.freeze()
                gc.unfreeze()
            gc.enable()
