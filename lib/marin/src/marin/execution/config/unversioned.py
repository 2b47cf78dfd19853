"""The part of a config that does not count: what an output was made with besides its version."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import re
import types
from collections.abc import Iterable, Mapping
from typing import Any, Final

from marin.execution.config.array_text import is_array, with_digest
from marin.execution.config.shapes import shape_of
from marin.execution.config.step import ExecutorStep, InputName
from marin.execution.config.values import MirroredValue, OutputName, VersionedValue
from marin.execution.config.walk import LEAF_TYPES, dataclass_field_names

_NOTHING: Final = object()

# Where an object happens to lie in memory.
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+|\b0x[0-9a-fA-F]{6,}")


def unversioned_part(config: Any) -> dict[str, Any]:
    """What a step's config (as it is given, not as the function sees it) holds beside versioned values and inputs.

    Returns:
        A JSON form by field, nested as the config is; a list that lost members has `[index]` keys for those that are
        left. Equal in every process, whatever the hash seed.
    """
    part = _part(config)
    if part is _NOTHING:
        return {}
    return part if isinstance(part, dict) else {"config": part}


def _part(value: Any) -> Any:
    kind = type(value)
    if kind in LEAF_TYPES and kind not in (bytes, complex):
        return value
    if issubclass(kind, (VersionedValue, InputName, ExecutorStep)):
        return _NOTHING
    if issubclass(kind, MirroredValue):
        return _part(value.value)  # its budget is for the way, not for the result
    if issubclass(kind, OutputName):
        return _NOTHING if value.name is None else f"this_output_path({value.name!r})"
    if issubclass(kind, enum.Enum):
        return _part(value.value)
    if issubclass(kind, (bool, int, float, str)):
        return value
    return _part_of_object(value, kind)


def _part_of_object(value: Any, kind: type[Any]) -> Any:
    if dataclasses.is_dataclass(kind):
        return _named((name, getattr(value, name, None)) for name in dataclass_field_names(kind))
    if issubclass(kind, datetime.timedelta):
        return {"days": value.days, "seconds": value.seconds, "microseconds": value.microseconds}
    if issubclass(kind, Mapping):
        return _named((_key_text(key), item) for key, item in value.items())
    if issubclass(kind, (list, tuple)):
        return _members(value)
    if issubclass(kind, (set, frozenset)):
        kept = [part for part in map(_part, value) if part is not _NOTHING]
        return sorted(kept, key=repr) if kept or not value else _NOTHING
    shape = shape_of(kind)
    if shape is None:
        return described(value)
    parts = shape.parts(value)
    return _members(item for _, item in parts) if shape.is_sequence else _named(parts)


def _named(items: Iterable[tuple[Any, Any]]) -> Any:
    kept: dict[str, Any] = {}
    is_empty = True
    for name, item in items:
        is_empty = False
        part = _part(item)
        if part is not _NOTHING:
            kept[name] = part
    return kept if kept or is_empty else _NOTHING


def _members(items: Iterable[Any]) -> Any:
    parts = [_part(item) for item in items]
    if not any(part is _NOTHING for part in parts):
        return parts
    kept = {f"[{index}]": part for index, part in enumerate(parts) if part is not _NOTHING}
    return kept or _NOTHING


def _key_text(key: Any) -> str:
    return key if type(key) is str else described(key)


def described(value: Any) -> str:
    """An object as a text that is the same in every process, as far as its class allows."""
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
        return f"{value.__module__}.{value.__qualname__}"
    try:
        if is_array(value):
            return with_digest(str(value), value)
        return _ADDRESS.sub("", repr(value) if isinstance(value, (bytes, bytearray)) else str(value))
    except Exception as error:  # a class's own words may raise anything, and are only for the record
        return f"<{type(value).__qualname__}, whose text raises {type(error).__name__}>"
