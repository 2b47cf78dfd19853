"""Paths and bodies of Google's APIs, from the discovery documents that google-api-python-client ships."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import googleapiclient

_DOCUMENTS: Final = Path(googleapiclient.__file__).parent / "discovery_cache" / "documents"
_LOOKED_AT: Final = 100  # elements of a long array
_INTEGER: Final = re.compile(r"-?\d+")
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_DURATION: Final = re.compile(r"-?\d+(\.\d{1,9})?s")
_FORMATS: Final[Mapping[str, re.Pattern[str]]] = {
    "int64": _INTEGER,
    "uint64": re.compile(r"\d+"),
    "google-datetime": _TIMESTAMP,
    "google-duration": _DURATION,
    "byte": re.compile(r"[A-Za-z0-9+/_-]*={0,2}"),
}
_TYPES: Final[Mapping[str, Any]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "number": (int, float),
    "integer": int,
}


@dataclass(frozen=True, slots=True)
class Method:
    """A method of an API: its id, like "tpu.projects.locations.nodes.create", verb, path and parts."""

    api: "Api"
    id: str
    verb: str
    path: re.Pattern[str]
    parameters: frozenset[str]
    request: str
    response: str


class Api:
    """A discovery document.

    Args:
        name: Its name, like "compute.v1".
    """

    def __init__(self, name: str) -> None:
        self._document: Any = json.loads((_DOCUMENTS / f"{name}.json").read_text())
        self._schemas = self._document["schemas"]
        self.methods = {method.id: method for method in self._read(self._document)}

    def _read(self, resource: Mapping[str, Any]) -> Iterator[Method]:
        common = self._document["parameters"]
        for found in resource.get("methods", {}).values():
            path = self._document["servicePath"] + found.get("flatPath", found["path"])
            yield Method(
                self,
                found["id"],
                found["httpMethod"],
                re.compile("/" + re.sub(r"\{\+?(\w+)\}", r"(?P<\1>[^/:]+)", path)),
                frozenset({*found.get("parameters", {}), *common} | {"$alt"}),
                found.get("request", {}).get("$ref", ""),
                found.get("response", {}).get("$ref", ""),
            )
        for inner in resource.get("resources", {}).values():
            yield from self._read(inner)

    def wrong(self, schema: str, value: object) -> list[str]:
        """Return what of a body does not fit a schema, in the words of Google's answer; empty if it fits."""
        return list(self._wrong({"$ref": schema} if schema else {"type": "object"}, value, "", schema))

    def _wrong(self, schema: Mapping[str, Any], value: Any, where: str, name: str) -> Iterator[str]:
        if "$ref" in schema:
            name = schema["$ref"]
            schema = self._schemas[name]
        form, kind = schema.get("format", ""), schema.get("type", "any")
        number = isinstance(value, int) and not isinstance(value, bool)
        if kind == "any" or (number and ("enum" in schema or form in ("int64", "uint64"))):  # Google takes both
            return
        if (isinstance(value, bool) and kind != "boolean") or not isinstance(value, _TYPES[kind]):
            yield f"Invalid value at '{where}' ({name or kind}), {json.dumps(value)[:80]}"
        elif kind == "object":
            yield from self._wrong_object(schema, value, where, name)
        elif kind == "array":
            for at, element in enumerate(value[:_LOOKED_AT]):
                yield from self._wrong(schema["items"], element, f"{where}[{at}]", "")
        elif kind == "string" and (
            value not in schema.get("enum", [value]) or (form in _FORMATS and not _FORMATS[form].fullmatch(value))
        ):
            yield f"Invalid value at '{where}' ({form or 'enum'}), {json.dumps(value)[:80]}"

    def _wrong_object(self, schema: Mapping[str, Any], value: Any, where: str, name: str) -> Iterator[str]:
        fields, rest = schema.get("properties", {}), schema.get("additionalProperties")
        if rest is not None and "@type" in value:  # a message of a known type in a field for any
            inner = str(value["@type"]).rpartition(".")[2]
            if inner in self._schemas:
                without = {key: found for key, found in value.items() if key != "@type"}
                yield from self._wrong({"$ref": inner}, without, where, inner)
            return
        for key, found in value.items():
            inside = f"{where}.{key}" if where else key
            if key in fields:
                yield from self._wrong(fields[key], found, inside, "")
            elif rest is not None:
                yield from self._wrong(rest, found, inside, "")
            else:
                yield f"Unknown name \"{key}\" at '{where or name}': Cannot find field."


@cache
def load(name: str) -> Api:
    """Return the discovery document of an API, like "tpu.v2"."""
    return Api(name)
