"""The storage root of a command, and the directory of its run records."""

from __future__ import annotations

from rigging.errors import InvalidRequest


def storage_root(prefix: str | None) -> str:
    """Return the chosen storage root, absolute and without a trailing slash.

    Raises:
        InvalidRequest: The prefix is empty.
    """
    from rigging.filesystem.prefix import absolute_prefix, marin_prefix

    if prefix is None:
        return marin_prefix()
    root = absolute_prefix(prefix).rstrip("/")
    if not root or root.endswith(":"):
        raise InvalidRequest(f"prefix {prefix!r}: a whole disk or kind of storage; give a directory or a bucket")
    return root


def runs_directory(root: str, runs_at: str | None) -> str:
    """Return the directory of a storage root's run records."""
    from rigging.filesystem.prefix import absolute_prefix

    return f"{root}/experiments" if runs_at is None else absolute_prefix(runs_at).rstrip("/")
