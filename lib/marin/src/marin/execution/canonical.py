"""The JSON texts that hashes are made of: one line, sorted keys, the separators of `json.dumps`."""

from __future__ import annotations

import json
from typing import Any


def canonical_text(value: Any) -> str:
    """`json.dumps(value, sort_keys=True)`, which makes an encoder anew at each call.

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
