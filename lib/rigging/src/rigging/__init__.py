"""The base of all marin libraries: storage prefixes, leases, clocks, backoff, logging, errors."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str


def __getattr__(name: str) -> str:
    """Look the version up when it is asked for: every import would pay for that otherwise."""
    if name == "__version__":
        from importlib.metadata import version

        return version("marin-rigging")
    raise AttributeError(f"module 'rigging' has no attribute {name!r}")
