"""The storage root of a run, to which relative paths refer."""

from __future__ import annotations

import os

from marin.execution.config.step import is_absolute


def prefix_or_default(prefix: str | None) -> str:
    """Return the given prefix as an absolute path, or this process's (`rigging.filesystem.marin_prefix`).

    Raises:
        InvalidRequest: The prefix is empty.
    """
    from rigging.filesystem import absolute_prefix, marin_prefix

    return marin_prefix() if prefix is None else absolute_prefix(prefix)


def under_prefix(prefix: str, path: str) -> str:
    """Return `path` below the prefix, unless it is absolute or a URL."""
    return path if is_absolute(path) else os.path.join(prefix, path)
