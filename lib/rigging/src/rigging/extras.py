"""Extras: packages that only some users need, and how to install them."""

from collections.abc import Iterator
from contextlib import contextmanager

from rigging.errors import InvalidRequest


class MissingExtra(InvalidRequest, ImportError):
    """A package from one of marin's extras is not installed."""


def install_extra(extra: str, package: str = "marin") -> str:
    """Return the end of an error message: how to install an extra."""
    return f"`uv pip install '{package}[{extra}]'`, or `uv sync --inexact --extra {extra}` in a clone of marin"


@contextmanager
def needing(extra: str, what: str, package: str = "marin") -> Iterator[None]:
    """Turn an import error inside the block into MissingExtra, with the installation command.

    Args:
        extra: The name of the extra.
        what: The start of the message.
        package: The package with the extra.
    """
    try:
        yield
    except MissingExtra:
        raise
    except ImportError as error:
        raise MissingExtra(f"{what} needs the extra `{extra}` ({error}): {install_extra(extra, package)}") from error
