"""Adds source lines to a job's error from files that only the submitter has, such as notebooks and scripts."""

import linecache
import os
import re
import sys
from typing import Final

from iris.client.types import JobStatus

# As `iris.worker.callable_main.describe` writes a frame; a line of its source follows where the worker has the file.
_FRAME: Final = re.compile(r'  File "(.+)", line (\d+), in .*')
_SOURCE: Final = "    "


def error_with_source(status: JobStatus) -> str:
    """Return a job's error with source lines from files that this process has loaded and the worker lacks.

    Files modified since the submission are skipped, because their lines may differ.
    """
    lines = status.error.split("\n")
    told: list[str] = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        told.append(line)
        frame = _FRAME.fullmatch(line)
        if frame is not None and not following.startswith(_SOURCE):
            source = _source_line(frame[1], int(frame[2]), status.submitted_at_ms)
            told += [_SOURCE + source] if source else []
    return "\n".join(told)


def _source_line(path: str, number: int, submitted_at_ms: int) -> str:
    is_loaded = any(getattr(module, "__file__", None) == path for module in list(sys.modules.values()))
    if is_loaded:
        try:
            if os.stat(path).st_mtime * 1000 > submitted_at_ms:
                return ""
        except OSError:
            return ""
    elif path not in linecache.cache:  # where notebooks keep their cells
        return ""
    return linecache.getline(path, number).strip()
