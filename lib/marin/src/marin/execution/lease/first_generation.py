"""Outputs from before status files existed: a file SUCCESS in the output, or beside it with the output's name."""

from __future__ import annotations

import os
from collections.abc import Collection

from rigging.filesystem import local_path, url_to_fs
from rigging.filesystem.location import path_in

SUCCESS_FILE = "SUCCESS"


def is_local_success(output_path: str) -> bool:
    """Return whether such a file marks an output on this machine's disk as complete. Return False elsewhere, without a
    request.
    """
    local = output_path if output_path.startswith("/") else local_path(output_path)
    return local is not None and any(os.path.isfile(place) for place in _places(local))


def is_without_success(name: str, names: Collection[str]) -> bool:
    """Return whether the names in a directory, case folded, include no such file beside the output `name`."""
    return f"{name}.{SUCCESS_FILE}".casefold() not in names


def is_success(output_path: str) -> bool:
    """Return whether such a file marks an output as complete, on any storage. This takes two requests, so use it for
    few outputs.
    """
    if local_path(output_path) is not None:
        return is_local_success(output_path)
    fs, _ = url_to_fs(output_path)
    return any(fs.isfile(place) for place in _places(output_path))


def _places(output_path: str) -> tuple[str, str]:
    return path_in(output_path, SUCCESS_FILE), f"{output_path.rstrip('/')}.{SUCCESS_FILE}"
