"""Errors for packages that only some steps need."""

from collections.abc import Iterator
from contextlib import contextmanager

from rigging.errors import InvalidRequest


@contextmanager
def needs_extra(purpose: str) -> Iterator[None]:
    """Context manager for imports of packages of the extra `quickstart`.

    Args:
        purpose: The purpose of the packages, for the error.

    Raises:
        InvalidRequest: A package is not installed. The message has the command to install it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise InvalidRequest(
            f"{purpose} needs the package {error.name!r}, which is not installed here; "
            "`uv sync --extra quickstart` installs it (on a cluster, each step's job gets its packages by itself)"
        ) from error
