"""Dataclasses as dicts."""

from __future__ import annotations

import dataclasses
from typing import Any

from rigging.errors import InvalidRequest


def asdict_without_nones(obj: Any) -> dict[str, Any]:
    """Return a dataclass and the dataclasses in it as dicts, without fields that are None.

    Raises:
        InvalidRequest: `obj` is not a dataclass instance.
    """
    if not dataclasses.is_dataclass(obj) or isinstance(obj, type):
        raise InvalidRequest(f"asdict_without_nones({obj!r}): expected an instance of a dataclass")
    return dataclasses.asdict(
        obj, dict_factory=lambda items: {name: value for name, value in items if value is not None}
    )
