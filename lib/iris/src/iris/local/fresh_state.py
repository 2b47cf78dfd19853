"""Removes the incomplete state of a controller that never served."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from iris.store.db import lock
from rigging.errors import MarinError


@contextlib.contextmanager
def left_as_found(state_dir: Path, has_served: Callable[[], bool]) -> Iterator[None]:
    """Context manager: remove new files from a state directory if the body fails before the controller serves.

    Removes files only if the directory was empty or missing, and no other controller has used it since.

    Args:
        state_dir: The directory.
        has_served: Returns whether clients may already know the controller.
    """
    was_there = state_dir.is_dir()
    is_ours = not was_there or not any(state_dir.iterdir())
    try:
        yield
    except BaseException:
        if is_ours and not has_served():
            with contextlib.suppress(OSError, MarinError):
                _clear(state_dir, was_there)
        raise


def _clear(state_dir: Path, was_there: bool) -> None:
    if not state_dir.is_dir():
        return
    descriptor = lock(state_dir)
    try:
        for path in state_dir.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        if not was_there:
            state_dir.rmdir()
    finally:
        os.close(descriptor)
