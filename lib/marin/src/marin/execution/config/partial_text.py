"""Find values whose text, and so their version, does not show the whole value."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Mapping, Sequence, Set
from typing import Any, Final

from marin.execution.config.shapes import PLAIN_SEQUENCES

# Python's own limit for what the text of a pattern shows.
_PATTERN_TEXT: Final = 200
# How libraries shorten a long text: three dots where a member, or a line of members, would stand.
_SHORTENED: Final = re.compile(r"^\s*\.\.\.,?$|[\[(,] ?\.\.\.[\]),]", re.MULTILINE)
_RANDOM: Final = ("Generator", "RandomState", "BitGenerator")
_SECRETS: Final = ("SecretStr", "SecretBytes", "Secret")


def left_out_of_text(value: Any) -> str:
    """Describe the part of a value that `str(value)` omits; "" if it omits nothing.

    Only generated texts are examined: those of pydantic models, attrs classes, dataclasses and collections. A class
    with its own `__str__` decides what its text shows.
    """
    kind = type(value)
    if isinstance(value, re.Pattern):
        return f"more than {_PATTERN_TEXT} characters of a pattern" if len(repr(value.pattern)) > _PATTERN_TEXT else ""
    return _of_libraries(value) or _of_fields(value, kind) or _of_members(value)


def is_shortened(text: str) -> bool:
    """Return whether three dots in a text stand for omitted members."""
    return _SHORTENED.search(text) is not None


def _of_libraries(value: Any) -> str:
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, tuple(getattr(numpy.random, name) for name in _RANDOM)):
        return "the state of a random generator"
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is not None and isinstance(value, (pyarrow.Schema, pyarrow.Field)) and _has_metadata(value):
        return "the metadata of a schema"
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(
        value, tuple(getattr(pydantic, n) for n in _SECRETS if hasattr(pydantic, n))
    ):
        return "a secret"
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(value, pandas.CategoricalDtype):
        return "its categories"
    zones = sys.modules.get("zoneinfo")
    if zones is not None and isinstance(value, zones.ZoneInfo) and getattr(value, "key", None) is None:
        return "the rules of a time zone without a name"
    return ""


def _has_metadata(value: Any) -> bool:
    """Return whether an Arrow schema or field has metadata, which its text shortens or omits."""
    return value.metadata is not None or (hasattr(value, "names") and any(_has_metadata(part) for part in value))


def _of_fields(value: Any, kind: type[Any]) -> str:
    is_shown: dict[str, bool] = {}
    if dataclasses.is_dataclass(kind) and _has_generated_text(kind):
        is_shown = {item.name: item.repr for item in dataclasses.fields(kind)}
    elif isinstance(getattr(kind, "__attrs_attrs__", None), tuple) and _has_generated_text(kind):
        is_shown = {item.name: item.repr is not False for item in kind.__attrs_attrs__}
    elif isinstance(getattr(kind, "__pydantic_fields__", None), Mapping) and _has_own_text_of_pydantic(kind):
        is_shown = {name: item.repr for name, item in kind.__pydantic_fields__.items()}
        is_shown |= dict.fromkeys(value.__pydantic_extra__ or {}, True)
        is_shown |= dict.fromkeys(_changed_private(value), False)
    hidden = next((name for name, shown in is_shown.items() if not shown), None)
    return f"its field {hidden!r}" if hidden else _first([getattr(value, name, None) for name in is_shown])


def _has_generated_text(kind: type[Any]) -> bool:
    """Return whether dataclasses or attrs generated the class's text."""
    makes_text: Any = getattr(kind.__repr__, "__wrapped__", kind.__repr__)
    code = getattr(makes_text, "__code__", None)
    is_generated = code is not None and code.co_filename.startswith(("<string>", "<attrs generated"))
    return is_generated and getattr(kind, "__str__", None) is getattr(object, "__str__", None)


def _changed_private(value: Any) -> list[str]:
    """Return the private attributes of a pydantic model that differ from their defaults."""
    declared = type(value).__private_attributes__
    private = value.__pydantic_private__ or {}
    return [name for name, item in private.items() if name in declared and item != _default_of(declared[name])]


def _default_of(declared: Any) -> Any:
    return declared.default if declared.default_factory is None else declared.default_factory()


def _has_own_text_of_pydantic(kind: type[Any]) -> bool:
    base = sys.modules["pydantic"].BaseModel
    methods = ("__str__", "__repr__", "__repr_args__", "__repr_str__")
    return issubclass(kind, base) and all(getattr(kind, name) is getattr(base, name) for name in methods)


def _of_members(value: Any) -> str:
    if isinstance(value, Mapping):
        return _first([*value.keys(), *value.values()])
    if isinstance(value, Set) or (isinstance(value, Sequence) and not isinstance(value, PLAIN_SEQUENCES)):
        return _first(value)
    return ""


def _first(values: Any) -> str:
    for value in values:
        is_array = hasattr(type(value), "__array__")
        if is_array and value.ndim:
            return "the whole of an array"
        missing = left_out_of_text(value)
        if missing:
            return missing
    return ""
