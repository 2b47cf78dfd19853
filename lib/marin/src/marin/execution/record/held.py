"""Find the functions and classes contained in a callable, which no name in its source leads to."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any, Final

from marin.execution.jobs.remote import RemoteCallable
from marin.execution.jobs.step_call import is_ray_function

# At most this many objects are followed from one step, and members of one container.
MOST_OBJECTS: Final = 200
_TABLES: Final = (tuple, frozenset, list, set)
_NOTHING_HELD: Final = (str, bytes, int, float, complex, type(None), types.BuiltinFunctionType, types.ModuleType)


def held_by(roots: Iterable[Any]) -> list[Any]:
    """Return the functions and classes among callables and inside them, at any depth, without wrappers.

    The search covers arguments of partials, closed-over values, attributes of methods' objects and of other callable
    objects, and members of containers there. It ignores attributes of objects that are not callable.
    """
    found: list[Any] = []
    seen: set[int] = set()
    waiting = [*roots]
    while waiting and len(seen) < MOST_OBJECTS:
        item = waiting.pop()
        if issubclass(type(item), _NOTHING_HELD) or id(item) in seen:
            continue
        seen.add(id(item))
        if issubclass(type(item), type):
            found.append(item)
            continue
        if type(item) is types.FunctionType and not hasattr(item, "__wrapped__"):
            found.append(item)
        with contextlib.suppress(Exception):  # any attribute of a proxy may raise
            waiting += _parts(item)
    return found


def table_in(value: Any) -> Any:
    """Return the table that a module's value is or has, where decorators may put functions: a container, or the cases
    of a `functools.singledispatch` function. None if there is none."""
    if isinstance(value, (dict, *_TABLES)):
        return value
    cases = getattr(value, "registry", None) if isinstance(value, types.FunctionType) else None
    return dict(cases) if isinstance(cases, types.MappingProxyType) else None


def attributes_of(owner: Any) -> dict[str, Any]:
    """Return an object's own attributes, including slots."""
    slots = [name for kind in type(owner).__mro__ for name in _slots_of(kind)]
    return {name: getattr(owner, name) for name in slots if hasattr(owner, name)} | getattr(owner, "__dict__", {})


def _parts(item: Any) -> Iterable[Any]:
    if isinstance(item, types.FunctionType):
        cells = tuple(_cells(item)) if item.__closure__ else ()
        return (*cells, item.__wrapped__) if hasattr(item, "__wrapped__") else cells
    if isinstance(item, functools.partial):
        return (item.func, *item.args, *item.keywords.values())
    if isinstance(item, RemoteCallable):
        return (item.fn,)
    if isinstance(item, types.MethodType):
        owner = item.__self__
        return (item.__func__, owner) if isinstance(owner, type) else (item.__func__, *_of_object(owner))
    if isinstance(item, dict):
        return item.values() if len(item) <= MOST_OBJECTS else ()
    if isinstance(item, _TABLES):
        return item if len(item) <= MOST_OBJECTS else ()
    if not callable(item):
        return ()
    if is_ray_function(item):
        return (getattr(getattr(item, "remote", None), "__wrapped__", None),)
    return (item.__wrapped__,) if hasattr(item, "__wrapped__") else _of_object(item)


def _of_object(owner: Any) -> Iterable[Any]:
    return (type(owner), *attributes_of(owner).values())


def _cells(fn: types.FunctionType) -> Iterator[Any]:
    for cell in fn.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue  # not filled yet


def _slots_of(kind: type[Any]) -> Iterable[str]:
    slots = vars(kind).get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return [name for name in names if name not in ("__dict__", "__weakref__") and not name.startswith("__")]
