"""The kinds of values in cluster files: how a key's value is read, and what it must be."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from rigging.errors import InvalidRequest
from rigging.text.quantities import parse_size
from rigging.text.yaml_files import Filled

Table: TypeAlias = Mapping[str, "Key"]


class Kind(StrEnum):
    """The type of a key's value."""

    TEXT = "text"
    CHOICE = "choice"
    FLAG = "flag"
    WHOLE = "whole"
    NUMBER = "number"
    SIZE = "size"
    DURATION = "duration"
    TEXTS = "texts"  # a mapping of texts to texts
    NAMES = "names"  # a list of texts
    SECTION = "section"
    ITEMS = "items"  # sections, in a list or by name
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the cluster file.

    Args:
        kind: The type of its value.
        default: The value if the file has none.
        least, most: The range of a number; of a size in bytes, of a duration in seconds.
        allowed: The allowed values in words, to follow "must be"; empty for the kind's own.
        choices: The values of a choice.
        pattern: What a text, or each text of a list, must match as a whole; empty for any.
        keys: The keys of a section, or of each item.
        required: Whether the file must have it.
        why: Why the key has no effect here; empty if it has one.
    """

    kind: Kind
    default: Any = None
    least: float = 0
    most: float = math.inf
    allowed: str = ""
    choices: tuple[str, ...] = ()
    pattern: str = ""
    keys: Table = field(default_factory=dict)
    required: bool = False
    why: str = ""

    def read(self, value: object) -> Any:
        """Return a value of the file, converted. Raise ValueError, with what it must be."""
        if isinstance(value, Filled):
            value = _plain(value) if self.kind in _SCALARS else str(value)
        return _READERS[self.kind](value, self)

    @property
    def must_be(self) -> str:
        """Return the allowed values in words."""
        if self.allowed:
            return self.allowed
        if self.kind is Kind.CHOICE:
            return " or ".join(map(repr, self.choices))
        if self.kind is Kind.WHOLE:
            return f"a whole number from {self.least:.0f} to {self.most:.0f}"
        return _WORDS[self.kind]


_SCALARS: Final = frozenset({Kind.FLAG, Kind.WHOLE, Kind.NUMBER})
_WORDS: Final[Mapping[Kind, str]] = MappingProxyType(
    {
        Kind.TEXT: "text",
        Kind.FLAG: "true or false",
        Kind.NUMBER: "a number, 0 or more",
        Kind.SIZE: "a size such as 448GB",
        Kind.DURATION: "a duration such as 60s, 5m or {milliseconds: 60000}",
        Kind.TEXTS: "a mapping of texts to texts (put numbers and booleans into quotes)",
        Kind.NAMES: "a list of texts",
        Kind.ITEMS: "a list, or a mapping by name",
    }
)
DURATION_PATTERN: Final = r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)"
_SECONDS: Final = MappingProxyType({"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400})


def _plain(value: str) -> object:
    """Return the boolean or number that a variable's text stands for, or the text."""
    if value in ("true", "false"):
        return value == "true"
    for convert in (int, float):
        try:
            return convert(value)
        except ValueError:
            continue
    return str(value)


def _text(value: object, key: Key) -> str:
    if not isinstance(value, str) or (key.required and not value):
        raise ValueError(key.must_be)
    if key.pattern and not re.fullmatch(key.pattern, value):
        raise ValueError(key.must_be)
    return value


def _choice(value: object, key: Key) -> str:
    if value not in key.choices:
        raise ValueError(key.must_be)
    return str(value)


def _flag(value: object, key: Key) -> bool:
    if not isinstance(value, bool):
        raise ValueError(key.must_be)
    return value


def _whole(value: object, key: Key) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not key.least <= value <= key.most:
        raise ValueError(key.must_be)
    return value


def _number(value: object, key: Key) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not key.least <= value <= key.most:
        raise ValueError(key.must_be)
    return float(value)


def _size(value: object, key: Key) -> int:
    try:
        size = parse_size(value) if isinstance(value, int | str) and not isinstance(value, bool) else -1
    except InvalidRequest:
        size = -1
    if size < key.least:
        raise ValueError(key.must_be)
    return size


def _duration(value: object, key: Key) -> float:
    seconds = -1.0
    if isinstance(value, dict) and set(value) == {"milliseconds"}:
        inner = value["milliseconds"]
        seconds = inner / 1000 if isinstance(inner, int | float) and not isinstance(inner, bool) else -1
    elif isinstance(value, str) and (match := re.fullmatch(DURATION_PATTERN, value.strip(), re.ASCII)):
        seconds = float(match[1]) * _SECONDS[match[2]]
    if not key.least <= seconds <= key.most:
        raise ValueError(key.must_be)
    return seconds


def _texts(value: object, key: Key) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict) or not all(isinstance(v, str) for kv in value.items() for v in kv):
        raise ValueError(key.must_be)
    return tuple((name, str(text)) for name, text in value.items())


def _names(value: object, key: Key) -> tuple[str, ...]:
    texts = value if isinstance(value, list) else [None]
    if not all(isinstance(item, str) and item.strip() for item in texts) or (key.required and not texts):
        raise ValueError(key.must_be)
    return tuple(_text(str(item).strip(), key) for item in texts)


_READERS: Final[Mapping[Kind, Callable[[object, Key], Any]]] = MappingProxyType(
    {
        Kind.TEXT: _text,
        Kind.CHOICE: _choice,
        Kind.FLAG: _flag,
        Kind.WHOLE: _whole,
        Kind.NUMBER: _number,
        Kind.SIZE: _size,
        Kind.DURATION: _duration,
        Kind.TEXTS: _texts,
        Kind.NAMES: _names,
    }
)
