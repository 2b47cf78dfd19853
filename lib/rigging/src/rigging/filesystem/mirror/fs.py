"""`rigging.mirror.fs` under the name that pickles and installed entry points of earlier releases have."""

import importlib


def __getattr__(name: str) -> object:
    return getattr(importlib.import_module("rigging.mirror.fs"), name)
