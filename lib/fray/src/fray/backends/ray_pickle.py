"""Shipping callables and exceptions between processes."""

import functools
import sys
import threading
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

import cloudpickle


def dumps(value: Any, *callables: Any) -> bytes:
    """Pickle a value; the modules of `callables` go along by value when no other process could import them."""
    modules = {getattr(_innermost(fn), "__module__", None) or "" for fn in callables}
    strange = [sys.modules[name] for name in modules if name in sys.modules and not _can_be_imported(sys.modules[name])]
    data: bytes
    if not strange:
        data = cloudpickle.dumps(value)
        return data
    with _registering:
        for module in strange:
            cloudpickle.register_pickle_by_value(module)
        try:
            data = cloudpickle.dumps(value)
        finally:
            for module in strange:
                cloudpickle.unregister_pickle_by_value(module)
    return data


def _innermost(fn: Any) -> Any:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn


# What cloudpickle ships by value is a setting of the whole process.
_registering = threading.Lock()
_importable: dict[str, bool] = {"__main__": True, "builtins": True}


def _can_be_imported(module: ModuleType) -> bool:
    # Test modules and notebooks are loaded by path: they are in sys.modules, but not on sys.path.
    name = module.__name__
    known = _importable.get(name)
    if known is None:
        known = _importable[name] = name in sys.builtin_module_names or _on_path(name)
    return known


def _on_path(name: str) -> bool:
    path: list[str] | None = None
    parts = name.split(".")
    for depth in range(len(parts)):
        spec = PathFinder.find_spec(".".join(parts[: depth + 1]), path)
        if spec is None:
            return False
        path = list(spec.submodule_search_locations or ())
    return True
