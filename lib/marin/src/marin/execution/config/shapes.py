"""Further kinds of objects in configs, besides dataclasses, dicts, lists, tuples and sets.

A *shape* returns the parts of an object, in the same order in every process, and copies the object with other parts.
pydantic models and attrs objects are recognised by their classes' attributes, without importing either library.
"""

from __future__ import annotations

import array
import collections
import copy
import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from rigging.errors import InvalidRequest

PLAIN_SEQUENCES: Final = (str, bytes, bytearray, memoryview, range, collections.UserString, array.array)
"""Sequence types of numbers or characters, which never contain parts of a config."""

Parts = Iterable[tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class Shape:
    """Functions that decompose a kind of object, and copy it with other parts.

    Attributes:
        parts: `parts(obj)` returns the (key, value) of every part: a field's name, a mapping's key, or a sequence
            index.
        make: `make(obj, changed)` returns a copy of `obj` with the parts in `changed` replaced.
        is_sequence: Whether keys are indices. has_fields: Whether keys are fields, so that other attributes are not
            parts.
    """

    parts: Callable[[Any], Parts]
    make: Callable[[Any, Mapping[Any, Any]], Any]
    is_sequence: bool = False
    has_fields: bool = False


def shape_of(kind: type[Any]) -> Shape | None:
    """Return the shape of a class's instances; None if they are not decomposed."""
    if isinstance(getattr(kind, "__pydantic_fields__", None), Mapping) and not dataclasses.is_dataclass(kind):
        return _PYDANTIC
    if isinstance(getattr(kind, "__attrs_attrs__", None), tuple):
        return _ATTRS
    if issubclass(kind, Mapping):
        return _MAPPING
    if issubclass(kind, Sequence) and not issubclass(kind, PLAIN_SEQUENCES):
        return _SEQUENCE
    return None


def _pydantic_parts(model: Any) -> Parts:
    fields = vars(model)
    yield from ((name, fields[name]) for name in type(model).__pydantic_fields__ if name in fields)
    yield from (model.__pydantic_extra__ or {}).items()
    yield from (model.__pydantic_private__ or {}).items()


def _make_pydantic(model: Any, changed: Mapping[str, Any]) -> Any:
    # Not validated again: a field may be typed as the input that stood there, and its path would be refused.
    private = {name: value for name, value in changed.items() if name in (model.__pydantic_private__ or {})}
    result = model.model_copy(update={name: value for name, value in changed.items() if name not in private})
    for name, value in private.items():
        setattr(result, name, value)
    return result


def _attrs_parts(obj: Any) -> Parts:
    for attribute in type(obj).__attrs_attrs__:
        if hasattr(obj, attribute.name):
            yield attribute.name, getattr(obj, attribute.name)


def _make_attrs(obj: Any, changed: Mapping[str, Any]) -> Any:
    kind = type(obj)
    if hasattr(kind, "__attrs_post_init__"):
        # What it derives or checks must see the real values.
        aliases = {item.name: item.alias for item in kind.__attrs_attrs__ if item.init}
        init = {aliases[name]: value for name, value in changed.items() if name in aliases}
        result = sys.modules["attr"].evolve(obj, **init)
        changed = {name: value for name, value in changed.items() if name not in aliases}
    else:
        result = copied_attrs(obj)
    for name, value in changed.items():
        object.__setattr__(result, name, value)
    return result


def copied_attrs(obj: Any) -> Any:
    """Return `copy.copy(obj)` of an attrs object, even if some of its fields are not set yet."""
    kind = type(obj)
    if all(hasattr(obj, attribute.name) for attribute in kind.__attrs_attrs__):
        return copy.copy(obj)
    # With slots, attrs' own way of copying reads every field, also one that is not set yet.
    result = object.__new__(kind)
    for name, value in [*getattr(obj, "__dict__", {}).items(), *_attrs_parts(obj)]:
        object.__setattr__(result, name, value)
    return result


def _mapping_parts(mapping: Mapping[Any, Any]) -> Parts:
    return mapping.items()


def _make_mapping(mapping: Mapping[Any, Any], changed: Mapping[Any, Any]) -> Any:
    if isinstance(mapping, collections.ChainMap):
        # In every map that has the key: what is hidden by an earlier one must not stay a placeholder either.
        return type(mapping)(*({key: changed.get(key, old) for key, old in layer.items()} for layer in mapping.maps))
    if isinstance(mapping, collections.UserDict):
        result = copy.copy(mapping)  # keeps a subclass and its attributes; copies what it holds
        result.update(changed)
        return result
    content = {**mapping, **changed}
    if isinstance(mapping, MappingProxyType):
        return MappingProxyType(content)
    return _constructed(mapping, content, lambda made: dict(made.items()))


def _sequence_parts(sequence: Sequence[Any]) -> Parts:
    return enumerate(sequence)


def _make_sequence(sequence: Sequence[Any], changed: Mapping[int, Any]) -> Any:
    content = [changed.get(index, value) for index, value in enumerate(sequence)]
    if isinstance(sequence, collections.deque):
        return type(sequence)(content, sequence.maxlen)
    if isinstance(sequence, collections.UserList):
        result = copy.copy(sequence)  # keeps a subclass and its attributes
        result.data = content
        return result
    return _constructed(sequence, content, list)


def _constructed(obj: Any, content: Any, read: Callable[[Any], Any]) -> Any:
    kind = type(obj)
    try:
        made = kind(content)
        is_right = read(made) == content
    except Exception as error:
        raise InvalidRequest(_cannot_make(kind, content, f"{type(error).__name__}: {error}")) from error
    if not is_right:
        raise InvalidRequest(_cannot_make(kind, content, "the new one holds something else"))
    return made


def _cannot_make(kind: type[Any], content: Any, why: str) -> str:
    plain = "dict" if isinstance(content, dict) else "list"
    return (
        f"a {kind.__name__} in a config holds a placeholder, and {kind.__name__}({plain}), called to put its value "
        f"there, failed ({why}); use a {plain}"
    )


_PYDANTIC: Final = Shape(_pydantic_parts, _make_pydantic, has_fields=True)
_ATTRS: Final = Shape(_attrs_parts, _make_attrs, has_fields=True)
_MAPPING: Final = Shape(_mapping_parts, _make_mapping)
_SEQUENCE: Final = Shape(_sequence_parts, _make_sequence, is_sequence=True)
