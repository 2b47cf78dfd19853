"""JSON for unsupported types, encoded like versions."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import logging
import os
from typing import Any

logger = logging.getLogger(__name__)


class CustomJsonEncoder(json.JSONEncoder):
    """Encode times, paths, enums and dataclasses like versions, and anything else as text with a warning."""

    def default(self, o: Any) -> Any:
        """Return the encoding of `o`."""
        if isinstance(o, datetime.timedelta):
            return {"days": o.days, "seconds": o.seconds, "microseconds": o.microseconds}
        if isinstance(o, os.PathLike):
            return os.fspath(o)
        if isinstance(o, enum.Enum):
            return o.value
        if dataclasses.is_dataclass(o) and not isinstance(o, type):
            return dataclasses.asdict(o)
        if not isinstance(o, type) and getattr(type(o), "__module__", "").partition(".")[0] != "jax":
            logger.warning("%r has no JSON form; its text is written instead: %s", type(o), o)
        return str(o)
