"""Copies of configs, so that a step's function can change its config without changing another step's."""

from __future__ import annotations

import collections
import copy
import dataclasses
from collections.abc import Callable, Iterator, MutableMapping, MutableSequence
from types import MappingProxyType, SimpleNamespace
from typing import Any, TypeVar

from marin.execution.config.shapes import copied_attrs, shape_of
from marin.execution.config.visitor import (
    LEAF_TYPES,
    PLACEHOLDER_KINDS,
    ConfigVisitor,
    ObjectKind,
    dataclass_field_names,
    object_kind,
)
from rigging.errors import InvalidRequest

T = TypeVar("T")

_PYDANTIC_ATTRIBUTES = ("__pydantic_extra__", "__pydantic_private__")


def copy_config(config: T) -> T:
    """Return a copy of a config that shares no container, dataclass, model or attrs object with it.

    An object that occurs twice in the config is one object in the copy, too. Constructors are not called, and
    attributes that are not fields are copied, too. Other objects are shared: arrays, weights, functions, objects of
    plain classes, frozen objects and tuples without mutable content, and objects whose class forbids copies.

    Raises:
        InvalidRequest: The config is nested too deeply.
    """
    try:
        result: T = _Copier().visit(config)
    except RecursionError:
        raise InvalidRequest(f"a config of type {type(config).__name__} is nested too deeply to be copied") from None
    return result


def _share(copier: _Copier, obj: Any) -> Any:
    del copier
    return obj


class _Copier(ConfigVisitor):
    """Copy each object once, even if it occurs several times."""

    __slots__ = ("_copies",)

    def __init__(self) -> None:
        # Every original by its id, beside its copy: ids stay taken only while their objects live.
        self._copies: dict[int, tuple[Any, Any]] = {}

    def visit(self, obj: Any) -> Any:
        """Return the copy of an object, or the object itself if it is shared."""
        kind = type(obj)
        method = self._methods.get(kind)
        if method is None:
            method = self._methods[kind] = self.method_for(kind)
        if method is _share:
            return obj
        known = self._copies.get(id(obj))
        return method(self, obj) if known is None else known[1]

    @classmethod
    def method_for(cls, kind: type[Any]) -> Callable[..., Any]:
        """Return the method for instances of a class."""
        exact = _EXACT.get(kind)
        if exact is not None:
            return exact
        what = object_kind(kind)
        # A dataclass may be a dict, too.
        if what not in _SHARED and issubclass(kind, (dict, list, set)):
            return cls._copy_subclass
        if what is ObjectKind.DATACLASS:
            return cls._copy_object
        if what in (ObjectKind.SEQUENCE, ObjectKind.SET):
            return cls._copy_unchangeable
        if what is ObjectKind.SHAPED:
            found = shape_of(kind)
            return cls._copy_object if found is not None and found.has_fields else cls._copy_own_kind
        return _share

    def _note(self, obj: T, made: T) -> T:
        self._copies[id(obj)] = (obj, made)
        return made

    def _copy_list(self, obj: list[Any]) -> Any:
        result: list[Any] = self._note(obj, [])
        result += [item if type(item) in LEAF_TYPES else self.visit(item) for item in obj]
        return result

    def _copy_dict(self, obj: dict[Any, Any]) -> Any:
        result: dict[Any, Any] = self._note(obj, {})
        for key, value in obj.items():
            new_key = key if type(key) in LEAF_TYPES else self.visit(key)
            result[new_key] = value if type(value) in LEAF_TYPES else self.visit(value)
        return result

    def _copy_set(self, obj: set[Any]) -> Any:
        result: set[Any] = self._note(obj, set())
        result.update([self.visit(item) for item in obj])
        return result

    def _copy_unchangeable(self, obj: Any) -> Any:
        """Return a copy of a tuple or frozenset, possibly of a subclass whose constructor takes other arguments."""
        kind = type(obj)
        before = list(obj)
        after = [self.visit(item) for item in before]
        attributes = getattr(obj, "__dict__", None)
        if not attributes and all(new is old for new, old in zip(after, before, strict=True)):
            return self._note(obj, obj)
        base = tuple if issubclass(kind, tuple) else frozenset
        result = self._note(obj, base.__new__(kind, after))
        self._copy_attributes(obj, result)
        return result

    def _copy_proxy(self, obj: MappingProxyType[Any, Any]) -> Any:
        content = {self.visit(key): self.visit(value) for key, value in obj.items()}
        return self._note(obj, MappingProxyType(content))

    def _copy_object(self, obj: Any) -> Any:
        """Return a copy of a dataclass, a model, an attrs object, or a namespace."""
        is_frozen = _is_frozen(type(obj))
        if is_frozen and _holds_leaves_alone(obj):
            return obj
        result = self._note(obj, _shallow(obj))
        if result is obj or self._copy_attributes(obj, result) or not is_frozen:
            return result
        return self._note(obj, obj)

    def _copy_subclass(self, obj: Any) -> Any:
        """Return a copy of a subclassed dict, list or set: copied attributes, and content inserted by its own
        methods."""
        result = self._note(obj, _shallow(obj))
        if result is obj:
            return obj
        if getattr(obj, "__dict__", None) is obj:  # attributes that are the items
            result.__dict__ = result
        else:
            self._copy_attributes(obj, result)
        if isinstance(obj, set):
            after = [self.visit(item) for item in obj]
            result.clear()
            result.update(after)
        elif isinstance(obj, list):
            result[:] = [self.visit(item) for item in obj]
        else:
            self._copy_items(obj, result)
        return result

    def _copy_items(self, obj: dict[Any, Any], result: dict[Any, Any]) -> None:
        items = [(key, self.visit(key), value, self.visit(value)) for key, value in obj.items()]
        if any(new_key is not key for key, new_key, _, _ in items):
            result.clear()
        for key, new_key, value, new in items:
            if new_key is not key or new is not value or key not in result:
                result[new_key] = new

    def _copy_own_kind(self, obj: Any) -> Any:
        """Return a copy of another mapping or sequence type, with any storage of its content."""
        kind = type(obj)
        if hasattr(kind, "__deepcopy__"):
            return self._note(obj, self._deep(obj))
        if not hasattr(obj, "__dict__"):
            is_changeable = issubclass(kind, (MutableMapping, MutableSequence))
            return self._note(obj, self._deep(obj) if is_changeable else obj)
        result = self._note(obj, _shallow(obj))
        if result is not obj:
            self._copy_attributes(obj, result)
        return result

    def _copy_deque(self, obj: collections.deque[Any]) -> Any:
        result = self._note(obj, collections.deque[Any](maxlen=obj.maxlen))
        result.extend([self.visit(item) for item in obj])
        return result

    def _copy_attributes(self, obj: Any, result: Any) -> bool:
        """Copy the attributes of a shallow copy. Return whether there were any to copy."""
        attributes = getattr(result, "__dict__", {})
        is_changed = False
        for name, value in list(_attributes(obj)):
            new = self.visit(value)
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
                object.__setattr__(result, name, self.visit(kept))
        return is_changed

    def _deep(self, obj: Any) -> Any:
        try:
            return copy.deepcopy(obj, {key: made for key, (_, made) in self._copies.items()})
        # The same of its content.
        except Exception:
            return obj


_SHARED = {*PLACEHOLDER_KINDS, ObjectKind.CONSTANT, ObjectKind.LEAF}
_EXACT: dict[type[Any], Callable[[_Copier, Any], Any]] = {
    list: _Copier._copy_list,
    dict: _Copier._copy_dict,
    tuple: _Copier._copy_unchangeable,
    set: _Copier._copy_set,
    frozenset: _Copier._copy_unchangeable,
    MappingProxyType: _Copier._copy_proxy,
    collections.deque: _Copier._copy_deque,
    SimpleNamespace: _Copier._copy_object,
}


def _attributes(obj: Any) -> Iterator[tuple[str, Any]]:
    """Yield every value of an object by name: its class's fields, and attributes that are not fields."""
    attributes = getattr(obj, "__dict__", {})
    yield from attributes.items()
    kind = type(obj)
    names = dataclass_field_names(kind) if dataclasses.is_dataclass(kind) else _attrs_names(kind)
    for name in names:
        if name not in attributes and hasattr(obj, name):
            yield name, getattr(obj, name)


def _holds_leaves_alone(obj: Any) -> bool:
    """Return whether all values of a dataclass instance are of `LEAF_TYPES`, as in most instantiated configs."""
    attributes = getattr(obj, "__dict__", {})
    if not LEAF_TYPES.issuperset(map(type, attributes.values())):
        return False
    names = dataclass_field_names(type(obj))
    return all(map(attributes.__contains__, names)) or all(type(value) in LEAF_TYPES for _, value in _attributes(obj))


def _attrs_names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(attribute.name for attribute in getattr(kind, "__attrs_attrs__", ()))


def _is_frozen(kind: type[Any]) -> bool:
    parameters = getattr(kind, "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)


def _shallow(obj: Any) -> Any:
    """Return `copy.copy(obj)`, or `obj` itself if its class forbids copies."""
    try:
        if hasattr(type(obj), "__attrs_attrs__"):
            return copied_attrs(obj)
        result = shallow_copy(obj)
    # Whatever a class's own ways of copying and pickling raise.
    except Exception:
        return obj
    return result if type(result) is type(obj) else obj


def shallow_copy(obj: Any) -> Any:
    """Return a shallow copy, faster than `copy.copy(obj)` for instances whose only state is their `__dict__`."""
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
