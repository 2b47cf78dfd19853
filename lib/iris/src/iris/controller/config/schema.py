"""The JSON schema of cluster files, for editors, from the reader's own table of keys."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from iris.controller.config.kinds import DURATION_PATTERN, Key, Kind, Table
from iris.controller.config.older_keys import FILE

_STRING: Final = {"type": "string"}
_MILLISECONDS: Final = {
    "type": "object",
    "properties": {"milliseconds": {"type": "number", "minimum": 0}},
    "required": ["milliseconds"],
    "additionalProperties": False,
}
_VARIABLE: Final = {"type": "string", "pattern": r"\$\{"}
_KINDS: Final[Mapping[Kind, Mapping[str, Any]]] = MappingProxyType(
    {
        Kind.ANY: {},
        Kind.TEXT: _STRING,
        Kind.FLAG: {"type": "boolean"},
        Kind.WHOLE: {"type": "integer"},
        Kind.NUMBER: {"type": "number"},
        Kind.SIZE: {"type": ["integer", "string"]},
        Kind.DURATION: {"anyOf": [{"type": "string", "pattern": rf"^\s*{DURATION_PATTERN}\s*$"}, _MILLISECONDS]},
        Kind.TEXTS: {"type": "object", "additionalProperties": _STRING},
        Kind.NAMES: {"type": "array", "items": _STRING},
    }
)


def file_schema() -> dict[str, Any]:
    """Return the JSON schema of cluster files in iris's form and its predecessor's."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A cluster file of iris",
        **_section(FILE),
    }


def _matching(made: dict[str, Any], pattern: str) -> dict[str, Any]:
    if made["type"] == "array":
        return {**made, "items": {"anyOf": [{**_STRING, "pattern": pattern}, _VARIABLE]}}
    return {**made, "pattern": pattern}


def _section(keys: Table) -> dict[str, Any]:
    properties = {name: _of(key) for name, key in keys.items()}
    return {"type": ["object", "null"], "properties": properties, "additionalProperties": False}


def _of(key: Key) -> dict[str, Any]:
    if key.why:
        return {"description": f"No effect: {key.why}."}
    if key.kind is Kind.SECTION:
        return _section(key.keys)
    if key.kind is Kind.ITEMS:
        item = _section(key.keys)
        return {"anyOf": [{"type": "array", "items": item}, {"type": ["object", "null"], "additionalProperties": item}]}
    if key.kind is Kind.CHOICE:
        made: dict[str, Any] = {"enum": list(key.choices)}
    else:
        made = dict(_KINDS[key.kind])
    if key.pattern:
        made = _matching(made, f"^(?:{key.pattern})$")
    if key.kind in (Kind.WHOLE, Kind.NUMBER):
        made["minimum"] = key.least
        if key.most < math.inf:
            made["maximum"] = key.most
    return {"description": f"Must be {key.must_be}.", "anyOf": [made, _VARIABLE, {"type": "null"}]} if made else {}
