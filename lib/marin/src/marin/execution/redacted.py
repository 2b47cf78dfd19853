"""Secrets kept out of what is written down about steps: by the name that a value stands under, and by its shape."""

from __future__ import annotations

import functools
import re
from typing import Any, Final

from rigging.redaction import REDACTED, is_secret_name, redact_string

_is_secret_name = functools.lru_cache(maxsize=8192)(is_secret_name)

# Without one of these a text cannot be of a secret's shape (see `rigging.redaction`); most texts are then not looked at
# any closer. A config has thousands of them.
_MAY_BE_SECRET: Final = re.compile(
    r"hf_|gh[pousr]_|github_pat_|glpat-|sk-|AIza|ya29|xox[abprs]-|AKIA|ASIA|eyJ|-----BEGIN|://[^/\s@\"']+@"
    r"|bearer|basic|token|secret|passw|passphrase|api[_-]?key|credential|[es][_-]?key|authorization",
    re.IGNORECASE,
)


def redacted(value: Any) -> Any:
    """A copy of a JSON form without secrets; what holds none is shared.

    Under a secret's name everything but None and truth values is replaced.
    """
    kind = type(value)
    if kind is str:
        return redact_string(value) if _MAY_BE_SECRET.search(value) is not None else value
    if kind is dict:
        changed = {key: _redacted_under(key, item) for key, item in value.items()}
        return changed if any(changed[key] is not value[key] for key in changed) else value
    if kind is list:
        items = [redacted(item) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def _redacted_under(name: Any, value: Any) -> Any:
    if value is None or type(value) is bool or not (isinstance(name, str) and _is_secret_name(name)):
        return redacted(value)
    return REDACTED
