"""The differences between two versions of a step, or two JSON values, in words."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from marin.execution.version.canonical import strict

WHAT_TO_TYPE = "--rerun-changed=TAG runs changed code and keeps these outputs; --force STEP replaces one"
_SHOWN_CHARACTERS = 120
_MISSING = object()

_Part = TypeVar("_Part", dict[str, Any], list[Any])

Version = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between two versions.

    Attributes:
        where: The versioned field (`optimizer.lr`), or the dependency as seen from the step: `dependency data: n`.
        before: The earlier version's value as JSON text; None if missing.
        after: The later version's value, likewise.
        is_code: Whether the code differs, not a value.
    """

    where: str
    before: str | None
    after: str | None
    is_code: bool = False

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.where}: {self.after} (new)"
        if self.after is None:
            return f"{self.where}: was {self.before} (removed)"
        return f"{self.where}: {self.before} -> {self.after}"


def differences(before: Version, after: Version) -> list[Difference]:
    """Return the differences between two versions without duplicates, fields first.

    Args:
        before: A version as in `.executor_info`. Malformed parts count as missing, because anybody may have written the
            file.
        after: The other version.
    """
    return list(dict.fromkeys(_compare(_as_stored(before), _as_stored(after), "")))


def value_differences(before: Any, after: Any) -> list[Difference]:
    """Return the differences between two JSON values, each under its dotted path."""
    if before == after:
        return []
    found = _compare_values(before, after, "")
    return [dataclasses.replace(difference, where=difference.where.lstrip(".")) for difference in found]


def _as_stored(version: Version) -> Any:
    # A version in memory may have tuples and other keys where a stored one has lists and texts.
    return strict(json.loads(json.dumps(version)))


def _compare(before: Version, after: Version, where: str) -> Iterator[Difference]:
    if before.get("name") != after.get("name"):
        yield Difference(f"{where}name", _text(before.get("name", _MISSING)), _text(after.get("name", _MISSING)))
    old, new = _part(before, "config", dict), _part(after, "config", dict)
    for field in dict.fromkeys([*new, *old]):
        if old.get(field, _MISSING) != new.get(field, _MISSING):
            yield from _compare_values(old.get(field, _MISSING), new.get(field, _MISSING), where + field)
    for key, label in (("dependencies", "dependency"), ("pseudo_dependencies", "non-blocking dependency")):
        yield from _compare_dependencies(_part(before, key, list), _part(after, key, list), where, label)


def _part(version: Version, key: str, kind: type[_Part]) -> _Part:
    part = version.get(key)
    return part if isinstance(part, kind) else kind()


def _compare_values(old: Any, new: Any, where: str) -> Iterator[Difference]:
    """Yield the differing parts of a versioned value: of dicts and equally long lists, the items."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*new, *old]):
            if old.get(key, _MISSING) != new.get(key, _MISSING):
                yield from _compare_values(old.get(key, _MISSING), new.get(key, _MISSING), f"{where}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            if one != other:
                yield from _compare_values(one, other, f"{where}.[{index}]")
    else:
        yield Difference(where, _text(old), _text(new))


def _compare_dependencies(old: Sequence[Any], new: Sequence[Any], where: str, label: str) -> Iterator[Difference]:
    for index in range(max(len(old), len(new))):
        one = old[index] if index < len(old) else _MISSING
        other = new[index] if index < len(new) else _MISSING
        if one == other:
            continue
        if isinstance(one, dict) and isinstance(other, dict) and one.get("name") == other.get("name"):
            yield from _compare(one, other, f"{where}{label} {other.get('name')}: ")
        elif _hashed_name(one) != _hashed_name(other):
            yield Difference(f"{where}{label} [{index}]", _hashed_name(one), _hashed_name(other))


def _hashed_name(dependency: Any) -> str | None:
    """Return a dependency as `{name}-{hash}`, from either of its two forms."""
    if dependency is _MISSING:
        return None
    if isinstance(dependency, str):
        return dependency
    if not isinstance(dependency, dict):
        return _text(dependency)
    digest = hashlib.md5(json.dumps(dependency, sort_keys=True).encode(), usedforsecurity=False).hexdigest()
    return f"{dependency.get('name')}-{digest[:6]}"


def _text(value: Any) -> str | None:
    if value is _MISSING:
        return None
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 3]}..."
