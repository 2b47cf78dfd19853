"""Common behaviour of the values that users see."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from iris.cluster.types import JobState, PriorityBand, TaskState


class Record:
    """A dataclass that programs may want as JSON."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain data; states as words."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    match value:
        case Record():
            return value.to_json()
        case JobState() | TaskState() | PriorityBand():
            return value.word
        case tuple():
            return [_plain(item) for item in value]
        case Mapping():
            return {_plain(key): item for key, item in value.items()}
    return value
