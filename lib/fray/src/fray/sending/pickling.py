"""Pickle callables and their arguments for other processes, including modules that only the sender has."""

import os
import pickle
import site
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

from rigging.errors import InvalidRequest
from rigging.process.fork_lock import ForkLock

__all__ = ["dumps", "dumps_apart", "installed_roots", "sent_by_value"]

_registering = ForkLock()


def dumps(value: Any, what: str, roots: Iterable[str] = (), pickler: ModuleType | None = None) -> bytes:
    """Pickle a value with cloudpickle, by value for modules that the receiver cannot import.

    Args:
        value: A callable and its arguments, or anything else.
        what: The value's name in errors.
        roots: Directories on the receiver's import path, besides this interpreter's installed packages.
        pickler: A copy of cloudpickle; None for cloudpickle itself. A class pickled by two copies becomes two classes.

    Raises:
        InvalidRequest: The value cannot be pickled.
    """
    chosen = pickler or _cloudpickle()
    with _by_value(_own_modules((*roots, *installed_roots())), chosen):
        try:
            payload: bytes = chosen.dumps(value)
        except Exception as error:  # anybody's `__reduce__` may refuse in its own way
            raise InvalidRequest(
                f"{what} cannot be sent to another process: {error}; "
                "pass plain values, and open files, locks and connections inside the function"
            ) from error
    return payload


def dumps_apart(value: Any, roots: Iterable[str], goes_inside: Callable[[pickle.PickleBuffer], Any]) -> bytes:
    """Pickle like `dumps`, with out-of-band buffers. Raise pickling errors unchanged.

    Args:
        value: Anything.
        roots: As in `dumps`.
        goes_inside: Decides for each buffer whether it stays in the pickle (see pickle's `buffer_callback`).
    """
    pickler = _cloudpickle()

    def dump() -> bytes:
        data: bytes = pickler.dumps(value, protocol=5, buffer_callback=goes_inside)
        return data

    own = _own_modules((*roots, *installed_roots()))
    if not own:  # as in most programs; calls of actors are many
        return dump()
    with _by_value(own, pickler):
        return dump()


@contextmanager
def sent_by_value(roots: Iterable[str], pickler: ModuleType | None = None) -> Iterator[None]:
    """Within the context, `pickler` pickles objects by value if the receiver cannot import their modules.

    Without such modules, as in most programs, this takes no lock.

    Args:
        roots: As in `dumps`.
        pickler: As in `dumps`.
    """
    own = _own_modules((*roots, *installed_roots()))
    if not own:
        yield
        return
    with _by_value(own, pickler or _cloudpickle()):
        yield


@contextmanager
def _by_value(own: list[ModuleType], pickler: ModuleType) -> Iterator[None]:
    # One at a time: which modules go by value is known to cloudpickle for the whole process.
    with _registering:
        for module in own:
            pickler.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in own:
                pickler.unregister_pickle_by_value(module)


def _cloudpickle() -> ModuleType:
    import cloudpickle  # takes a while, and not every process sends something

    module: ModuleType = cloudpickle
    return module


@cache
def installed_roots() -> tuple[str, ...]:
    """Return the directories that every process of this interpreter's environment imports from."""
    paths = sysconfig.get_paths()
    roots = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    for folder in {paths["purelib"], paths["platlib"], *site.getsitepackages()}:
        roots.update(_paths_of_pth_files(folder))
    roots.update(path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path)
    return tuple(sorted(os.path.realpath(root) for root in roots))


def _paths_of_pth_files(folder: str) -> Iterator[str]:
    """Return the directories that editable installs add to the import path."""
    if not os.path.isdir(folder):
        return
    for name in os.listdir(folder):
        if name.endswith(".pth"):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                lines = [line.strip() for line in file]
            yield from (line for line in lines if line and not line.startswith(("#", "import")) and os.path.isdir(line))


_latest: tuple[object, list[ModuleType]] | None = None


def _own_modules(roots: tuple[str, ...]) -> list[ModuleType]:
    """Return the modules to pickle by value. They are searched for again after other modules were loaded."""
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
    """Return whether importing `name` with `roots` on the path finds `file`."""
    real = _real_path(file)
    stem = os.path.join(*name.split("."))
    candidates = (stem + ".", os.path.join(stem, "__init__."))
    for root in roots:
        if real.startswith(root + os.sep):
            inside = real[len(root) + 1 :]
            if inside.startswith(candidates) or f"{os.sep}site-packages{os.sep}" in real:
                return True
            # Extension modules and the standard library's own layout (lib-dynload).
            if root == _standard_library():
                return True
    return False


def _real_path(file: str) -> str:
    """Return `os.path.realpath`, cached by folder: a process resolves thousands of modules in few folders."""
    folder, name = os.path.split(file)
    return os.path.realpath(file) if os.path.islink(file) else os.path.join(_real_folder(folder), name)


@cache
def _real_folder(folder: str) -> str:
    return os.path.realpath(folder)


@cache
def _standard_library() -> str:
    return os.path.realpath(sysconfig.get_path("stdlib"))
