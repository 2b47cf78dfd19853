"""Outputs from before status files: marked by a file SUCCESS in the output, or `{output}.SUCCESS` beside it."""

from __future__ import annotations

import os
from collections.abc import Collection

from rigging.filesystem import local_path, url_to_fs
from rigging.filesystem.location import path_in

SUCCESS_FILE = "SUCCESS"


def is_local_success(output_path: str) -> bool:
    """Return whether a SUCCESS file on this machine's disk marks an output as complete; False for other storage."""
    local = output_path if output_path.startswith("/") else local_path(output_path)
    return local is not None and any(os.path.isfile(place) for place in _places(local))


def is_without_success(name: str, names: Collection[str]) -> bool:
    """Return whether the case-folded names in a directory include no SUCCESS file for the output `name`."""
    return f"{name}.{SUCCESS_FILE}".casefold() not in names


def is_success(output_path: str) -> bool:
    """Return whether a SUCCESS file marks an output as complete, on any storage. This takes two requests per output."""
    if local_path(output_path) is not None:
        return is_local_success(output_path)
    fs, _ = url_to_fs(output_path)
    return any(fs.isfile(place) for place in _places(output_path))


def _places(output_path: str) -> tuple[str, str]:
    return path_in(output_path, SUCCESS_FILE), f"{output_path.rstrip('/')}.{SUCCESS_FILE}"
