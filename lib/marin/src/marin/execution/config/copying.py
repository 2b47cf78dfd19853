"""Copies of configs, so that what one step's function changes in its config is in no other's."""

from __future__ import annotations

import collections
import copy
import dataclasses
from collections.abc import Callable, Iterator, MutableMapping, MutableSequence
from enum import Enum
from types import MappingProxyType, SimpleNamespace
from typing import Any, TypeVar

from marin.execution.config.shapes import copied_attrs, shape_of
from marin.execution.config.step import PLACEHOLDERS
from marin.execution.config.walk import LEAF_TYPES, dataclass_field_names
from rigging.errors import InvalidRequest

T = TypeVar("T")

# Every original by its id, beside its copy: ids stay taken only while their objects live.
_Copies = dict[int, tuple[Any, Any]]
_Copier = Callable[[Any, _Copies], Any]

_PYDANTIC_ATTRIBUTES = ("__pydantic_extra__", "__pydantic_private__")


def copy_config(config: T) -> T:
    """A copy of a config that has no container, dataclass, model or attrs object in common with it.

    What stands in two places of the config stands in two places of the copy. Constructors are not called, and
    attributes that are no fields are copied along. Shared are all other objects (arrays, weights, functions, objects of
    plain classes), frozen ones and tuples that hold nothing to copy, and what its class does not let be copied.

    Raises:
        InvalidRequest: The config is nested too deeply.
    """
    try:
        result: T = _copy(config, {})
    except RecursionError:
        raise InvalidRequest(f"a config of type {type(config).__name__} is nested too deeply to be copied") from None
    return result


def _copy(obj: Any, copies: _Copies) -> Any:
    kind = type(obj)
    if kind in LEAF_TYPES:
        return obj
    copier = _copiers.get(kind)
    if copier is None:
        copier = _copiers[kind] = _copier_of(kind)
    if copier is _share:
        return obj
    known = copies.get(id(obj))
    return copier(obj, copies) if known is None else known[1]


def _copier_of(kind: type[Any]) -> _Copier:
    if issubclass(kind, (Enum, type, *PLACEHOLDERS)):
        return _share
    exact = _EXACT.get(kind)
    if exact is not None:
        return exact
    # Before dataclasses: a dataclass may be a dict, too.
    if issubclass(kind, (dict, list, set)):
        return _copy_subclass
    if dataclasses.is_dataclass(kind):
        return _copy_object
    if issubclass(kind, (tuple, frozenset)):
        return _copy_unchangeable
    shape = shape_of(kind)
    if shape is None:
        return _share
    if shape.has_fields:
        return _copy_object
    return _copy_own_kind


def _share(obj: Any, copies: _Copies) -> Any:
    del copies
    return obj


def _note(obj: T, made: T, copies: _Copies) -> T:
    copies[id(obj)] = (obj, made)
    return made


def _copy_list(obj: list[Any], copies: _Copies) -> Any:
    result: list[Any] = _note(obj, [], copies)
    result += [item if type(item) in LEAF_TYPES else _copy(item, copies) for item in obj]
    return result


def _copy_dict(obj: dict[Any, Any], copies: _Copies) -> Any:
    result: dict[Any, Any] = _note(obj, {}, copies)
    for key, value in obj.items():
        new_key = key if type(key) in LEAF_TYPES else _copy(key, copies)
        result[new_key] = value if type(value) in LEAF_TYPES else _copy(value, copies)
    return result


def _copy_set(obj: set[Any], copies: _Copies) -> Any:
    result: set[Any] = _note(obj, set(), copies)
    result.update([_copy(item, copies) for item in obj])
    return result


def _copy_unchangeable(obj: Any, copies: _Copies) -> Any:
    """A tuple or a frozenset, of a subclass perhaps, whose constructor may take other arguments."""
    kind = type(obj)
    before = list(obj)
    after = [_copy(item, copies) for item in before]
    attributes = getattr(obj, "__dict__", None)
    if not attributes and all(new is old for new, old in zip(after, before, strict=True)):
        return _note(obj, obj, copies)
    base = tuple if issubclass(kind, tuple) else frozenset
    result = _note(obj, base.__new__(kind, after), copies)
    _copy_attributes(obj, result, copies)
    return result


def _copy_proxy(obj: MappingProxyType[Any, Any], copies: _Copies) -> Any:
    content = {_copy(key, copies): _copy(value, copies) for key, value in obj.items()}
    return _note(obj, MappingProxyType(content), copies)


def _copy_object(obj: Any, copies: _Copies) -> Any:
    """A dataclass, a model, an attrs object, a namespace."""
    is_frozen = _is_frozen(type(obj))
    if is_frozen and all(type(value) in LEAF_TYPES for _, value in _attributes(obj)):
        return obj
    result = _note(obj, _shallow(obj), copies)
    if result is obj or _copy_attributes(obj, result, copies) or not is_frozen:
        return result
    return _note(obj, obj, copies)


def _copy_subclass(obj: Any, copies: _Copies) -> Any:
    """A dict, a list or a set of a subclass: with its attributes, and its content put there by its own methods."""
    result = _note(obj, _shallow(obj), copies)
    if result is obj:
        return obj
    if getattr(obj, "__dict__", None) is obj:  # attributes that are the items
        result.__dict__ = result
    else:
        _copy_attributes(obj, result, copies)
    if isinstance(obj, set):
        after = [_copy(item, copies) for item in obj]
        result.clear()
        result.update(after)
    elif isinstance(obj, list):
        result[:] = [_copy(item, copies) for item in obj]
    else:
        _copy_items(obj, result, copies)
    return result


def _copy_items(obj: dict[Any, Any], result: dict[Any, Any], copies: _Copies) -> None:
    items = [(key, _copy(key, copies), value, _copy(value, copies)) for key, value in obj.items()]
    if any(new_key is not key for key, new_key, _, _ in items):
        result.clear()
    for key, new_key, value, new in items:
        if new_key is not key or new is not value or key not in result:
            result[new_key] = new


def _copy_own_kind(obj: Any, copies: _Copies) -> Any:
    """A mapping or a sequence of another kind, which keeps its content where its class likes."""
    kind = type(obj)
    if hasattr(kind, "__deepcopy__"):
        return _note(obj, _deep(obj, copies), copies)
    if not hasattr(obj, "__dict__"):
        is_changeable = issubclass(kind, (MutableMapping, MutableSequence))
        return _note(obj, _deep(obj, copies) if is_changeable else obj, copies)
    result = _note(obj, _shallow(obj), copies)
    if result is not obj:
        _copy_attributes(obj, result, copies)
    return result


def _copy_deque(obj: collections.deque[Any], copies: _Copies) -> Any:
    result = _note(obj, collections.deque[Any](maxlen=obj.maxlen), copies)
    result.extend([_copy(item, copies) for item in obj])
    return result


def _attributes(obj: Any) -> Iterator[tuple[str, Any]]:
    """Every value of an object by its name: those of its class's fields, and of attributes that are no fields."""
    attributes = getattr(obj, "__dict__", {})
    yield from attributes.items()
    kind = type(obj)
    names = dataclass_field_names(kind) if dataclasses.is_dataclass(kind) else _attrs_names(kind)
    for name in names:
        if name not in attributes and hasattr(obj, name):
            yield name, getattr(obj, name)


def _attrs_names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(attribute.name for attribute in getattr(kind, "__attrs_attrs__", ()))


def _copy_attributes(obj: Any, result: Any, copies: _Copies) -> bool:
    """Put copies into the attributes of a shallow copy; whether there were any to make."""
    attributes = getattr(result, "__dict__", {})
    is_changed = False
    for name, value in list(_attributes(obj)):
        new = _copy(value, copies)
        if new is value:
            continue
        is_changed = True
        if name in attributes:
            attributes[name] = new
        else:
            object.__setattr__(result, name, new)
    for name in _PYDANTIC_ATTRIBUTES if hasattr(type(obj), "__pydantic_fields__") else ():
        kept = getattr(obj, name, None)
        if isinstance(kept, dict):
            is_changed = True
            object.__setattr__(result, name, _copy(kept, copies))
    return is_changed


def _is_frozen(kind: type[Any]) -> bool:
    parameters = getattr(kind, "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)


def _shallow(obj: Any) -> Any:
    """`copy.copy(obj)`; `obj` itself when its class does not let it be copied."""
    try:
        if hasattr(type(obj), "__attrs_attrs__"):
            return copied_attrs(obj)
        result = shallow_copy(obj)
    # Whatever a class's own ways of copying and pickling raise.
    except Exception:
        return obj
    return result if type(result) is type(obj) else obj


def _deep(obj: Any, copies: _Copies) -> Any:
    try:
        return copy.deepcopy(obj, {key: made for key, (_, made) in copies.items()})
    # The same of its content.
    except Exception:
        return obj


_EXACT: dict[type[Any], _Copier] = {
    list: _copy_list,
    dict: _copy_dict,
    tuple: _copy_unchangeable,
    set: _copy_set,
    frozenset: _copy_unchangeable,
    MappingProxyType: _copy_proxy,
    collections.deque: _copy_deque,
    SimpleNamespace: _copy_object,
}

# How a class's instances are copied is looked up, not asked of each of them again.
_copiers: dict[type[Any], _Copier] = {}


def shallow_copy(obj: Any) -> Any:
    """`copy.copy(obj)`, which takes its time; the instances of most dataclasses are just their `__dict__`."""
    kind = type(obj)
    is_plain = _is_plain.get(kind)
    if is_plain is None:
        is_plain = _is_plain[kind] = _has_plain_instances(kind)
    if not is_plain:
        return copy.copy(obj)
    result = object.__new__(kind)
    result.__dict__.update(obj.__dict__)
    return result


_is_plain: dict[type, bool] = {}
_COPY_HOOKS = ("__new__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__copy__", "__getnewargs__")


def _has_plain_instances(kind: type) -> bool:
    changes_copying = any(getattr(kind, hook, None) is not getattr(object, hook, None) for hook in _COPY_HOOKS)
    has_slots = any("__slots__" in vars(base) for base in kind.__mro__[:-1] if vars(base).get("__slots__", ()) != ())
    return not changes_copying and not has_slots and hasattr(kind, "__dict__") and kind.__dictoffset__ != 0
