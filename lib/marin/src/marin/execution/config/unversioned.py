"""The unversioned part of a config, recorded beside outputs."""

from __future__ import annotations

import datetime
import enum
import re
import types
from collections.abc import Iterable, Mapping
from typing import Any, Final

from marin.execution.config.array_text import is_array, with_digest
from marin.execution.config.values import MirroredValue, OutputName
from marin.execution.config.visitor import ConfigVisitor, dataclass_field_names, shape

_NOTHING: Final = object()

# An object's address in memory.
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+|\b0x[0-9a-fA-F]{6,}")


def unversioned_part(config: Any) -> dict[str, Any]:
    """Return the values of a step's config, before instantiation, that are neither versioned nor inputs.

    Returns:
        A JSON form by field, nested like the config. A list that lost members becomes a dict with `[index]` keys. The
        result does not depend on the hash seed.
    """
    part = _UNVERSIONED.visit(config)
    if part is _NOTHING:
        return {}
    return part if isinstance(part, dict) else {"config": part}


class _UnversionedPart(ConfigVisitor):
    """Return the JSON form of unversioned parts, or `_NOTHING` if everything is versioned."""

    def visit_placeholder(self, obj: Any) -> Any:
        """Omit placeholders, which are versioned."""
        del obj
        return _NOTHING

    def visit_mirrored(self, obj: MirroredValue[Any]) -> Any:
        """Describe the mirrored path. The budget affects only the transfer, not the result."""
        return self.visit(obj.value)

    def visit_output(self, obj: OutputName) -> Any:
        """Describe a path below the output."""
        return _NOTHING if obj.name is None else f"this_output_path({obj.name!r})"

    def visit_constant(self, obj: Any) -> Any:
        """Describe an enum member by its value, and a class by its name."""
        return self.visit(obj.value) if isinstance(obj, enum.Enum) else described(obj)

    def visit_leaf(self, obj: Any) -> Any:
        """Return JSON values unchanged."""
        return described(obj) if isinstance(obj, (bytes, complex)) else obj

    visit_scalar = visit_leaf

    def visit_dataclass(self, obj: Any) -> Any:
        """Describe an object by its fields."""
        return self._named([(name, getattr(obj, name, None)) for name in dataclass_field_names(type(obj))])

    def visit_dict(self, obj: Mapping[Any, Any]) -> Any:
        """Describe a mapping by its items."""
        return self._named([(_key_text(key), item) for key, item in obj.items()])

    def visit_sequence(self, obj: Iterable[Any]) -> Any:
        """Describe a sequence by its members."""
        parts = [self.visit(item) for item in obj]
        if not any(part is _NOTHING for part in parts):
            return parts
        kept = {f"[{index}]": part for index, part in enumerate(parts) if part is not _NOTHING}
        return kept or _NOTHING

    def visit_set(self, obj: Any) -> Any:
        """Describe a set by its members, sorted."""
        kept = [part for part in map(self.visit, obj) if part is not _NOTHING]
        return sorted(kept, key=repr) if kept or not obj else _NOTHING

    def visit_shaped(self, obj: Any) -> Any:
        """Describe an object of a shape by its parts."""
        if isinstance(obj, Mapping):
            return self.visit_dict(obj)
        parts = shape(obj)
        if parts.is_sequence:
            return self.visit_sequence([item for _, item in parts.parts(obj)])
        return self._named(parts.parts(obj))

    def visit_other(self, obj: Any) -> Any:
        """Describe any other object by its text."""
        if isinstance(obj, datetime.timedelta):
            return {"days": obj.days, "seconds": obj.seconds, "microseconds": obj.microseconds}
        return described(obj)

    def _named(self, items: Iterable[tuple[Any, Any]]) -> Any:
        kept: dict[str, Any] = {}
        is_empty = True
        for name, item in items:
            is_empty = False
            part = self.visit(item)
            if part is not _NOTHING:
                kept[name] = part
        return kept if kept or is_empty else _NOTHING


_UNVERSIONED: Final = _UnversionedPart()


def _key_text(key: Any) -> str:
    return key if type(key) is str else described(key)


def described(value: Any) -> str:
    """Return an object's text, stable across processes as far as its class allows."""
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
        return f"{value.__module__}.{value.__qualname__}"
    try:
        if is_array(value):
            return with_digest(str(value), value)
        return _ADDRESS.sub("", repr(value) if isinstance(value, (bytes, bytearray)) else str(value))
    except Exception as error:  # the class's own text may raise anything
        return f"<{type(value).__qualname__}, whose text raises {type(error).__name__}>"
