"""Reproducible experiments: a DAG of steps with content-addressed output paths."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str


def __getattr__(name: str) -> str:
    """Look up the version on first use, so that `import marin` stays fast."""
    if name == "__version__":
        from importlib.metadata import version

        return version("marin")
    raise AttributeError(f"module 'marin' has no attribute {name!r}")
