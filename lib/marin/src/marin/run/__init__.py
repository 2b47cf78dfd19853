"""Tools for Ray clusters (`python -m marin.run.ray_run`), and `map_files` over many files on any backend."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marin.run.mapping.api import map_files
    from marin.run.mapping.result import FilesFailed, MapFilesResult
    from marin.run.subprocess_call import in_subprocess

# Loaded when first asked for: the command lines beside them must start quickly.
_PLACES = {
    "FilesFailed": "marin.run.mapping.result",
    "MapFilesResult": "marin.run.mapping.result",
    "in_subprocess": "marin.run.subprocess_call",
    "map_files": "marin.run.mapping.api",
}

__all__ = ["FilesFailed", "MapFilesResult", "in_subprocess", "map_files"]


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _PLACES:
        raise AttributeError(f"module 'marin.run' has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)
