"""The modules that exist here, their names, and the arguments of their functions."""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import inspect
from types import ModuleType
from typing import Any, Final

#: Packages of this project: they are imported to see what they have.
OURS: Final = ("fray", "iris", "marin", "rigging")


class Missing(Exception):
    """A name does not exist here. The message says which part, and suggests the nearest name."""


@functools.cache
def is_installed(package: str) -> bool:
    """Return whether a package can be imported, without importing it."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


@functools.cache
def resolve(name: str) -> Any:
    """Return the module or member of this project with a dotted name.

    Raises:
        Missing: The name does not exist.
    """
    parts = name.split(".")
    found: Any = importlib.import_module(parts[0])
    for index, part in enumerate(parts[1:], 1):
        holder_name = ".".join(parts[:index])
        is_last = index == len(parts) - 1
        if is_last and hasattr(found, part):
            return getattr(found, part)
        # A package may have a function of the name of a module of its own; what is below the name is the module's.
        if (module := _module_below(found, f"{holder_name}.{part}")) is not None:
            found = module
        elif hasattr(found, part):
            found = getattr(found, part)
        else:
            raise Missing(f"{holder_name} has no {part}{_nearest(found, part)}")
    return found


def star_names(module: str) -> list[str]:
    """Return the names that `from module import *` binds; none if the module does not exist here."""
    try:
        found = resolve(module)
    except Missing:
        return []
    return list(getattr(found, "__all__", [name for name in vars(found) if not name.startswith("_")]))


def _module_below(holder: Any, name: str) -> ModuleType | None:
    if not hasattr(holder, "__path__") or importlib.util.find_spec(name) is None:
        return None
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Missing(f"{name} cannot be imported here: {error}") from None


def _nearest(holder: Any, name: str) -> str:
    near = difflib.get_close_matches(name, [entry for entry in dir(holder) if not entry.startswith("_")], n=1)
    return f"; it has {near[0]}" if near else ""


def call_problem(function: Any, positional: int, keywords: tuple[str, ...], *, is_whole: bool) -> str | None:
    """Return why a call would fail; None if it would not fail, or the signature is unknown.

    Args:
        function: The function or class.
        positional: The number of positional arguments.
        keywords: The names of keyword arguments.
        is_whole: Whether these are all arguments, without unpacked `*args` and `**kwargs`.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    kinds = [parameter.kind for parameter in parameters.values()]
    by_name = {
        name: parameter
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    }
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        for name in keywords:
            if name not in by_name:
                return f"there is no argument {name!r}; it takes {', '.join(by_name) or 'none'}"
    places = [name for name, parameter in parameters.items() if parameter.kind not in _NOT_BY_POSITION]
    if inspect.Parameter.VAR_POSITIONAL not in kinds and positional > len(places):
        return f"{positional} arguments by position; it takes {len(places)}: {', '.join(places)}"
    if not is_whole or inspect.Parameter.VAR_POSITIONAL in kinds:
        return None
    given = {*places[:positional], *keywords}
    missing = [name for name, found in by_name.items() if found.default is found.empty and name not in given]
    return f"the argument {missing[0]!r} is missing" if missing else None


_NOT_BY_POSITION: Final = (
    inspect.Parameter.KEYWORD_ONLY,
    inspect.Parameter.VAR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
)
