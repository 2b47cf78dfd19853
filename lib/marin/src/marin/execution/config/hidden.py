"""Search inside objects that the traversal of a config does not enter."""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import decimal
import fractions
import functools
import gc
import pathlib
import re
import sys
import types
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum
from typing import Any, Final

from marin.execution.config.shapes import shape_of
from rigging.errors import InvalidRequest

# Types whose instances hold nothing of a config. Functions are not searched: their closures are code.
_INERT_TYPES: Final = (
    str,
    bytes,
    bytearray,
    memoryview,
    int,
    float,
    complex,
    type(None),
    range,
    collections.UserString,
    array.array,
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.GenericAlias,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    datetime.tzinfo,
    decimal.Decimal,
    fractions.Fraction,
    pathlib.PurePath,
    re.Pattern,
    uuid.UUID,
)

_DEEPEST: Final = 500


def is_inert(kind: type[Any]) -> bool:
    """Return whether instances of a class cannot contain any part of a config."""
    return issubclass(kind, _INERT_TYPES)


def is_iterator(kind: type[Any]) -> bool:
    """Return whether a class is a builtin generator or iterator, which can be read only once."""
    return kind.__module__ in ("builtins", "itertools") and issubclass(kind, Iterator)


def find_inside(obj: Any, wanted: Callable[[Any], bool], closed: tuple[type[Any], ...] = ()) -> tuple[str, Any] | None:
    """Return the first object for which `wanted` is true: `obj`, or an object inside it at any depth.

    The search covers attributes (`__dict__` and slots), members of collections, arguments of partials and exceptions,
    the objects of methods, enum values, the objects behind iterators, arrays and tables of objects. It does not call
    properties, advance iterators, or search closures.

    Args:
        obj: The object to search.
        wanted: The condition.
        closed: Types whose instances are not searched.

    Returns:
        The object's place, in the form after a variable's name (`.a[0]`), and the object; None if there is none.
    """
    seen: set[int] = set()
    kept: list[Any] = []  # ids stay taken only while their objects live
    stack: list[tuple[str, Any, int]] = [("", obj, 0)]
    while stack:
        where, item, depth = stack.pop()
        if depth > _DEEPEST:  # it may make its parts anew, each like itself, without end
            raise InvalidRequest(f"an object of type {type(obj).__name__} is nested too deeply to look into")
        if wanted(item):
            return where, item
        if is_inert(type(item)) or id(item) in seen or isinstance(item, closed):
            continue
        seen.add(id(item))
        kept.append(item)
        stack += reversed([(where + step, part, depth + 1) for step, part in _inside(item)])
    return None


def _inside(obj: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(obj, Enum):
        yield ".value", obj._value_  # a class may make a property of its own of `value`
        return
    if is_iterator(type(obj)):
        yield from (("[...]", value) for value in gc.get_referents(obj))
        return
    yield from _attributes(obj)
    if isinstance(obj, functools.partial):
        yield ".func", obj.func
        yield from ((f".args[{index}]", value) for index, value in enumerate(obj.args))
        yield from ((f".keywords[{key!r}]", value) for key, value in obj.keywords.items())
    elif isinstance(obj, types.MethodType):
        yield ".__self__", obj.__self__
    elif _is_table(obj):
        columns = obj.items() if obj.ndim == 2 else [(obj.name, obj)]
        yield from ((f"[{name!r}]", column.to_numpy()) for name, column in columns if column.dtype == object)
    elif isinstance(obj, BaseException):
        yield from ((f".args[{index}]", value) for index, value in enumerate(obj.args))
    elif _is_object_array(obj):
        values = obj.flat if obj.dtype.names is None else obj.ravel().tolist()
        yield from ((f".flat[{index}]", value) for index, value in enumerate(values))
    else:
        yield from _members(obj)


def _members(obj: Any) -> Iterator[tuple[str, Any]]:
    shape = shape_of(type(obj))
    if isinstance(obj, Mapping):
        for key, value in obj.items():
            yield f" key {key!r}", key
            yield f"[{key!r}]", value
    elif shape is not None:
        yield from ((f"[{key}]" if shape.is_sequence else f".{key}", value) for key, value in shape.parts(obj))
    elif isinstance(obj, Collection) and not hasattr(type(obj), "__array__"):
        # Sets, views of dicts, and the like: they can be read again and again.
        yield from (("[...]", value) for value in obj)


def _attributes(obj: Any) -> Iterator[tuple[str, Any]]:
    if dataclasses.is_dataclass(obj):
        names = [field.name for field in dataclasses.fields(obj)]
    else:
        names = list(getattr(obj, "__dict__", ()))
        for kind in type(obj).__mro__:
            slots = vars(kind).get("__slots__", ())
            names += [_mangled(kind, str(slot)) for slot in ([slots] if isinstance(slots, str) else slots)]
    for name in dict.fromkeys(names):
        try:
            value = object.__getattribute__(obj, name)
        except AttributeError:
            continue  # a slot that was never filled
        yield f".{name}", value


def _mangled(kind: type[Any], name: str) -> str:
    is_private = name.startswith("__") and not name.endswith("__")
    return f"_{kind.__name__.lstrip('_')}{name}" if is_private else name


def _is_table(obj: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(obj, (pandas.DataFrame, pandas.Series))


def _is_object_array(obj: Any) -> bool:
    # An array can only be numpy's when numpy has been imported; importing it here would slow down every start.
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(obj, numpy.ndarray) and obj.dtype.hasobject
