"""The words of status files, and their path."""

from __future__ import annotations

import json

from marin.output_files import STATUS_FILE
from rigging.filesystem.location import path_in

STATUS_SUCCESS = "SUCCESS"
STATUS_FAILED = "FAILED"
STATUS_RUNNING = "RUNNING"
STATUS_DEP_FAILED = "DEP_FAILED"


def status_path(output_path: str) -> str:
    """Return the status file of an output path."""
    return path_in(output_path, STATUS_FILE)


def parse_status(content: bytes | None) -> str | None:
    """Return the status in a status file's content; None for a missing or empty file.

    The content is only the status word. Older files have one JSON object per line; the last readable line counts.
    """
    if content is None:
        return None
    text = content.decode("utf-8", "replace").strip()
    if not text.startswith("{"):
        return text or None
    for line in reversed(text.splitlines()):
        try:
            return str(json.loads(line)["status"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue  # the writer was killed within this line
    return None
