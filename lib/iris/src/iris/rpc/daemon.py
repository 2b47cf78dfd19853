"""Process settings of a cluster's daemons. Apply them before importing gRPC."""

import gc
import os
from typing import Final

_EXPERIMENTS: Final = "GRPC_EXPERIMENTS"
# gRPC's former pollers wake 40 % fewer threads a message (docs/performance.md).
_VERBOSITY: Final = "GRPC_VERBOSITY"
_FORMER_POLLERS: Final = "-event_engine_client,-event_engine_listener"
_YOUNG_OBJECTS: Final = 20_000
"""Garbage collection threshold: cycles are rare here, and each collection visits all live objects."""


def tune_process() -> None:
    """Reduce thread wake-ups, garbage collections and third-party log lines. Existing environment variables take
    precedence.
    """
    os.environ.setdefault(_EXPERIMENTS, _FORMER_POLLERS)
    # Else gRPC writes a line for everybody who says anything but TLS to a port: strangers could fill the log.
    os.environ.setdefault(_VERBOSITY, "ERROR")
    gc.set_threshold(_YOUNG_OBJECTS, 20, 20)
