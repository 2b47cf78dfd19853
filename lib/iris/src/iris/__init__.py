"""A gRPC cluster scheduler for TPU, GPU and CPU jobs."""

import os
from typing import TYPE_CHECKING

from iris.notice import Preemption, preemption
from iris.progress import report_checkpoint, report_progress

if TYPE_CHECKING:
    __version__: str

__all__ = ["Preemption", "preemption", "report_checkpoint", "report_progress"]

# gRPC reads this when it is imported. By default it starts its threads again in every forked child of a process that
# uses it, there to read from the parent's own connections; now and then such a child crashed before its first line.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# Else a client writes a line for every handshake that fails, once a second while it tries, beside its own words for it.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")


def __getattr__(name: str) -> str:
    """Look up the version on first use, so that `import iris` stays fast."""
    if name == "__version__":
        from importlib.metadata import version

        return version("marin-iris")
    raise AttributeError(f"module 'iris' has no attribute {name!r}")
