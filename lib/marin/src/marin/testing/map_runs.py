"""Traces of runs of `map_files`, for tests."""

import json
import os
from pathlib import Path

_AT_ONCE_SECONDS = 2.0


def made(out: Path) -> list[str]:
    """Return the outputs; not what is being written."""
    return [name for name in os.listdir(out) if not name.startswith(".")] if out.exists() else []


def begun_after_success(calls: Path, out: Path) -> list[str]:
    """Inputs for which the function was called when their output was there already.

    A worker whose driver was killed may be at work when the next driver gives its file to another: such calls, begun
    before or at the moment when the first of them succeeded, do not count.

    Args:
        calls: JSON lines of an input and the time at which a call of it began.
        out: Folder of outputs, which have their inputs' names and are written only while the function runs.
    """
    found: list[str] = []
    for line in calls.read_text().splitlines():
        source, began = json.loads(line)
        if began > os.stat(out / source).st_mtime + _AT_ONCE_SECONDS:
            found.append(source)
    return found
