"""Reproducible experiments: a DAG of steps with content-addressed output paths."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str


def __getattr__(name: str) -> str:
    """Look the version up when it is asked for: every import would pay for that otherwise."""
    if name == "__version__":
        from importlib.metadata import version

        return version("marin")
    raise AttributeError(f"module 'marin' has no attribute {name!r}")
