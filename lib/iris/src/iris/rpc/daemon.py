"""Settings of a cluster's long-lived processes; to be made before gRPC is imported."""

import gc
import os
from typing import Final

_EXPERIMENTS: Final = "GRPC_EXPERIMENTS"
# gRPC's former pollers wake 40 % fewer threads a message (docs/performance.md).
_FORMER_POLLERS: Final = "-event_engine_client,-event_engine_listener"
_YOUNG_OBJECTS: Final = 20_000
"""Objects made between two looks for cycles; these are few here, and each look costs all that lives."""


def tune_process() -> None:
    """Fewer threads woken and fewer looks for garbage; what the environment says already stays."""
    os.environ.setdefault(_EXPERIMENTS, _FORMER_POLLERS)
    gc.set_threshold(_YOUNG_OBJECTS, 20, 20)
