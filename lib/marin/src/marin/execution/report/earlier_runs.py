"""The duration of steps in earlier runs of a script, from the event logs beside the run's info file."""

from __future__ import annotations

import json
import logging
import posixpath
import re
import statistics
from collections.abc import Iterable
from typing import Final

from rigging.filesystem import read_bytes_or_none, url_to_fs

logger = logging.getLogger(__name__)

# Each is a request at an object store; the latest say most.
_MOST_LOGS: Final = 5
_MOST_BYTES: Final = 8 << 20
_INFO_NAME: Final = re.compile(r"(?P<script>.+)-[0-9a-f]{6}\.json")
_LOG_NAME: Final = re.compile(r"(?P<script>.+)-[0-9a-f]{6}-(?P<when>\d{8}T\d{6}\.\d{6}Z)-\d+\.events\.jsonl")


def latest_logs(info_name: str, names: Iterable[str], most: int = _MOST_LOGS) -> list[str]:
    """Return the names of the newest event logs of an info file's script, newest first.

    Args:
        info_name: The info file's name.
        names: The names of the existing event logs.
        most: Maximum number of logs.
    """
    info = _INFO_NAME.fullmatch(info_name)
    if info is None:
        return []
    found = [match for name in names if (match := _LOG_NAME.fullmatch(name)) and match["script"] == info["script"]]
    return [match[0] for match in sorted(found, key=lambda match: match["when"], reverse=True)[:most]]


def usual_seconds(lines: Iterable[str]) -> dict[str, float]:
    """Return the median duration in seconds of successful steps, by name.

    Args:
        lines: Lines of event logs. Those of killed writers may be truncated.
    """
    seconds: dict[str, list[float]] = {}
    for line in lines:
        if '"status": "succeeded"' not in line:
            continue
        try:
            event = json.loads(line)
            seconds.setdefault(str(event["name"]), []).append(float(event["seconds"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return {name: statistics.median(each) for name, each in seconds.items()}


def read_usual_seconds(info_path: str) -> dict[str, float]:
    """Return `usual_seconds` for the latest runs of an info file's script; {} if they cannot be read."""
    try:
        fs, path = url_to_fs(info_path)
        folder, _, info_name = path.rpartition("/")
        names = [posixpath.basename(str(each)) for each in fs.ls(folder, detail=False)]
        base = info_path.rpartition("/")[0]
        texts = [read_bytes_or_none(f"{base}/{name}") or b"" for name in latest_logs(info_name, names)]
    # Storage libraries raise errors of many types, and this is an estimate.
    except Exception as error:
        logger.debug("earlier runs cannot be read beside %s: %s", info_path, error)
        return {}
    return usual_seconds(line for text in texts for line in text[:_MOST_BYTES].decode("utf-8", "replace").splitlines())
