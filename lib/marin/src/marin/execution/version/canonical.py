"""JSON texts: canonical ones for hashes, and indented ones for info files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

string_text = json.encoder.encode_basestring_ascii
"""The JSON text of a string."""


def canonical_text(value: Any) -> str:
    """Return `json.dumps(value, sort_keys=True)` without creating an encoder for each call.

    The value must not contain itself.
    """
    return "".join(_encoded(value, 0))


def _slowly(value: Any, _level: int) -> tuple[str]:
    return (json.dumps(value, sort_keys=True),)


def _no_json_form(value: Any) -> Any:
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


# Absent on interpreters without the json module's C part. Its arguments: no check for circles, what to do with other
# types, the texts of strings, no indentation, the separators, sorted keys, no skipping of keys, NaN allowed.
_make_encoder = getattr(json.encoder, "c_make_encoder", None)
_SETTINGS = (None, _no_json_form, json.encoder.encode_basestring_ascii, None, ": ", ", ", True, False, True)
_encoded = _slowly if _make_encoder is None else _make_encoder(*_SETTINGS)


def to_bytes(content: dict[str, Any]) -> bytes:
    """Return an info file's text, `json.dumps(content, indent=2)`, faster than the json module.

    It is strict JSON: non-finite numbers become the texts `"NaN"`, `"Infinity"` and `"-Infinity"`.
    """
    return indented_text(content, "\n").encode()


def strict(value: Any) -> Any:
    """Return a JSON value in the form for info files, with non-finite numbers as texts (see `to_bytes`)."""
    if isinstance(value, float) and not math.isfinite(value):
        return _not_finite(value)
    if isinstance(value, dict):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(item) for item in value]
    return value


def _not_finite(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


class SharedDict(dict[str, Any]):
    """A read-only dict shared by many contents. `indented_text` computes its text once."""

    def __init__(self, items: Mapping[str, Any]) -> None:
        super().__init__(items)
        self.texts: dict[str, str] = {}


def indented_text(value: Any, newline: str) -> str:
    """Return `json.dumps(value, indent=2)` with `newline` for every line break."""
    kind = type(value)
    if kind is str:
        return string_text(value)
    if kind is dict:
        if not value:
            return "{}"
        inner = newline + "  "
        items = [
            # Most keys and most values are texts, or None; they need no further call.
            f"{string_text(key) if type(key) is str else _key_text(key)}: "
            f"{string_text(item) if type(item) is str else 'null' if item is None else indented_text(item, inner)}"
            for key, item in value.items()
        ]
        return f"{{{inner}{f',{inner}'.join(items)}{newline}}}"
    if value is None:
        return "null"
    if kind is list or kind is tuple:
        if not value:
            return "[]"
        inner = newline + "  "
        return f"[{inner}{f',{inner}'.join([indented_text(item, inner) for item in value])}{newline}]"
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return str(value)
    if kind is SharedDict:
        if newline not in value.texts:
            value.texts[newline] = indented_text(dict(value), newline)
        return str(value.texts[newline])
    return json.dumps(strict(value), indent=2).replace("\n", newline)


def _key_text(key: Any) -> str:
    return json.dumps({key: 0})[1:-4]
