"""The base of all marin libraries: storage prefixes, leases, clocks, backoff, logging, errors."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str


def __getattr__(name: str) -> str:
    """Look up the version on first use, so that `import rigging` stays fast."""
    if name == "__version__":
        from importlib.metadata import version

        return version("marin-rigging")
    raise AttributeError(f"module 'rigging' has no attribute {name!r}")
