"""Packages that only some steps need."""

from collections.abc import Iterator
from contextlib import contextmanager

from rigging.errors import InvalidRequest


@contextmanager
def needs_extra(purpose: str) -> Iterator[None]:
    """Context manager for imports of packages that come with the extra `quickstart`.

    Args:
        purpose: What they are needed for, for the error.

    Raises:
        InvalidRequest: One is not installed; it says how to install them.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise InvalidRequest(
            f"{purpose} needs the package {error.name!r}, which is not installed here; "
            "`uv sync --extra quickstart` installs it (on a cluster, each step's job gets its packages by itself)"
        ) from error
