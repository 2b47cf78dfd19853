"""The storage root of a run, which relative paths refer to."""

from __future__ import annotations

import os

from marin.execution.config.step import is_absolute


def prefix_or_default(prefix: str | None) -> str:
    """Return the prefix given, made absolute, or the one of this process (`rigging.filesystem.marin_prefix`).

    Raises:
        InvalidRequest: The prefix is empty.
    """
    from rigging.filesystem import absolute_prefix, marin_prefix

    return marin_prefix() if prefix is None else absolute_prefix(prefix)


def under_prefix(prefix: str, path: str) -> str:
    """Return `path` below the prefix, unless it stands for itself."""
    return path if is_absolute(path) else os.path.join(prefix, path)
