"""Extras: packages that only some users need, and how they are installed."""

from collections.abc import Iterator
from contextlib import contextmanager

from rigging.errors import InvalidRequest


class MissingExtra(InvalidRequest, ImportError):
    """A package is not installed that an extra of marin brings."""


def install_extra(extra: str, package: str = "marin") -> str:
    """Return how an extra is installed, in words for the end of an error."""
    return f"`uv pip install '{package}[{extra}]'`, or `uv sync --inexact --extra {extra}` in a clone of marin"


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Turn a failed import within into MissingExtra, which says what needs the extra and how it is installed.

    Args:
        extra: Of marin.
        what: Begins the message.
    """
    try:
        yield
    except MissingExtra:
        raise
    except ImportError as error:
        raise MissingExtra(f"{what} needs the extra `{extra}` ({error}): {install_extra(extra)}") from error
