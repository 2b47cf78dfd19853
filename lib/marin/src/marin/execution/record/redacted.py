"""Redaction of secrets in records of steps, by the name that a value stands under and by its shape."""

from __future__ import annotations

import functools
import re
from typing import Any, Final

from rigging.redaction import REDACTED, is_secret_name, redact_string

_is_secret_name = functools.lru_cache(maxsize=8192)(is_secret_name)

# A config has thousands of texts, most of them paths. A text without any of these signs holds no secret that
# `rigging.redaction` knows, and is not searched: the beginnings of tokens, in lower case ...
_SHAPES: Final = (
    *("hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "sk-", "aiza", "ya29.", "xox", "akia"),
    *("asia", "eyj", "-----begin", "bearer", "basic", "@"),
)
# ... or a secret's name together with a separator between a name and its value.
_ANY_SHAPE: Final = re.compile("|".join(map(re.escape, _SHAPES)))
_NAMES: Final = ("token", "secret", "passw", "passphrase", "key", "credential", "authorization")
_BETWEEN: Final = ("=", " ", '"', "'", "\t", "\n")


def redacted(value: Any) -> Any:
    """Return a JSON value with its secrets replaced; parts without secrets are shared, not copied.

    Every value under a secret's name is replaced, except None and booleans.
    """
    kind = type(value)
    if kind is str:
        return redact_string(value) if _may_hold_secret(value) else value
    if kind is dict:
        changed = None
        for name, item in value.items():
            new = _redacted_under(name, item)
            if new is not item:
                changed = dict(value) if changed is None else changed
                changed[name] = new
        return value if changed is None else changed
    if kind is list:
        items = [redacted(item) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def _may_hold_secret(text: str) -> bool:
    small = text.lower()
    if _ANY_SHAPE.search(small):
        return True
    if not any(sign in small for sign in _BETWEEN):
        return False
    return any(name in small for name in _NAMES)


def _redacted_under(name: Any, value: Any) -> Any:
    kind = type(value)
    if value is None or kind is bool:
        return value
    if type(name) is str and _is_secret_name(name):
        return REDACTED
    return value if kind is int or kind is float else redacted(value)
