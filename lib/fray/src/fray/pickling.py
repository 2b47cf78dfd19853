"""Sending callables and their arguments to other processes, also those of modules that only the sender has."""

import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from types import ModuleType
from typing import Any

from rigging.errors import InvalidRequest
from rigging.fork_lock import ForkLock

__all__ = ["dumps", "installed_roots"]

_registering = ForkLock()


def dumps(value: Any, what: str, roots: Iterable[str] = ()) -> bytes:
    """Pickle a value by cloudpickle, by value where it belongs to modules that the receiver cannot import.

    Args:
        value: A callable and its arguments, or anything else.
        what: Names it in the error.
        roots: Directories on the receiver's import path, besides what is installed for this interpreter.

    Raises:
        InvalidRequest: It cannot be pickled.
    """
    import cloudpickle

    # One at a time: which modules go by value is known to cloudpickle for the whole process.
    with _registering:
        own = _own_modules((*roots, *installed_roots()))
        for module in own:
            cloudpickle.register_pickle_by_value(module)
        try:
            payload: bytes = cloudpickle.dumps(value)
        except Exception as error:  # anybody's `__reduce__` may refuse in its own way
            raise InvalidRequest(
                f"{what} cannot be sent to another process: {error}; "
                "pass plain values, and open files, locks and connections inside the function"
            ) from error
        finally:
            for module in own:
                cloudpickle.unregister_pickle_by_value(module)
    return payload


@cache
def installed_roots() -> tuple[str, ...]:
    """The directories that every process of this interpreter's environment imports from."""
    paths = sysconfig.get_paths()
    roots = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    for folder in {paths["purelib"], paths["platlib"], *site.getsitepackages()}:
        roots.update(_paths_of_pth_files(folder))
    roots.update(path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path)
    return tuple(sorted(os.path.realpath(root) for root in roots))


def _paths_of_pth_files(folder: str) -> Iterator[str]:
    """The directories that installed projects in editable mode add to the import path."""
    if not os.path.isdir(folder):
        return
    for name in os.listdir(folder):
        if name.endswith(".pth"):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                lines = [line.strip() for line in file]
            yield from (line for line in lines if line and not line.startswith(("#", "import")) and os.path.isdir(line))


_latest: tuple[object, list[ModuleType]] | None = None


def _own_modules(roots: tuple[str, ...]) -> list[ModuleType]:
    """The modules that go by value; looked for again when other modules are loaded than the last time."""
    global _latest
    # Modules are kept in the order of their loading: another count or another last one says that something changed.
    key = (roots, len(sys.modules), next(reversed(sys.modules)))
    if _latest is None or _latest[0] != key:
        _latest = (key, list(_modules_of_the_sender_alone(list(roots))))
    return [sys.modules[module.__name__] for module in _latest[1]]


def _modules_of_the_sender_alone(roots: list[str]) -> Iterator[ModuleType]:
    key = tuple(roots)
    for name, module in list(sys.modules.items()):
        if name != "__main__" and getattr(module, "__name__", None) == name and not _is_importable(name, module, key):
            yield module


def _is_importable(name: str, module: ModuleType, roots: tuple[str, ...]) -> bool:
    file = getattr(module, "__file__", None)
    # Built in, a namespace, or made at run time: cloudpickle knows what to do.
    return file is None or _is_found(name, file, roots)


@cache
def _is_found(name: str, file: str, roots: tuple[str, ...]) -> bool:
    """Whether importing `name` with `roots` on the path finds `file`."""
    real = os.path.realpath(file)
    stem = os.path.join(*name.split("."))
    candidates = (stem + ".", os.path.join(stem, "__init__."))
    for root in roots:
        if real.startswith(root + os.sep):
            inside = real[len(root) + 1 :]
            if inside.startswith(candidates) or f"{os.sep}site-packages{os.sep}" in real:
                return True
            # Extension modules and the standard library's own layout (lib-dynload).
            if root == os.path.realpath(sysconfig.get_path("stdlib")):
                return True
    return False
