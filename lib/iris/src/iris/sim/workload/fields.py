"""Reads the fields of input files and options. Every error names the place, the value and the allowed values."""

import math
from collections.abc import Mapping
from typing import Any, Final

from iris.domain.ids import validate_name
from iris.domain.resources import Resources, validate_resources
from iris.domain.states import PriorityBand
from iris.sim.workload.model import amount
from rigging.errors import InvalidRequest

_KINDS: Final = ("gpu", "tpu")


class Fields:
    """The named values of one job class, host group or line. Tracks the requested names.

    Args:
        place: The place, for messages, e.g. "trace.csv, line 7".
    """

    def __init__(self, place: str, values: Mapping[str, Any]) -> None:
        self.place = place
        self._values = values
        self._known: dict[str, None] = {}

    def has(self, name: str) -> bool:
        self._known[name] = None
        value = self._values.get(name)
        return value is not None and value != ""

    def raw(self, name: str) -> Any:
        """Return the value unchanged. Raises InvalidRequest if it is missing."""
        if not self.has(name):
            raise InvalidRequest(f"{self.place}: {name} is missing")
        return self._values[name]

    def number(self, name: str, default: float | None = None, least: float = 0.0) -> float:
        """Return a finite number of at least `least`."""
        if default is not None and not self.has(name):
            return default
        value = self.raw(name)
        try:
            found = float(value)
        except (TypeError, ValueError):
            found = math.nan
        if isinstance(value, bool) or not math.isfinite(found) or found < least:
            raise InvalidRequest(f"{self.place}: {name} is {value!r}; it must be a number of at least {least:g}")
        return found

    def count(self, name: str, default: int | None = None, least: int = 1) -> int:
        """Return a whole number of at least `least`."""
        found = self.number(name, default, least)
        if found != int(found):
            raise InvalidRequest(f"{self.place}: {name} is {self._values[name]!r}; it must be a whole number")
        return int(found)

    def text(self, name: str, default: str = "") -> str:
        return str(self._values[name]).strip() if self.has(name) else default

    def user(self, value: str) -> str:
        """Return a name that is valid in a job id."""
        try:
            return validate_name(value)
        except InvalidRequest as error:
            raise InvalidRequest(f"{self.place}: user: {error}") from None

    def band(self) -> PriorityBand:
        word = self.text("band", PriorityBand.INTERACTIVE.word).lower()
        for band in PriorityBand:
            if band.word == word:
                return band
        allowed = ", ".join(band.word for band in PriorityBand)
        raise InvalidRequest(f"{self.place}: band is {word!r}; it must be one of {allowed}")

    def resources(self) -> Resources:
        """Return `cpu` (cores), `memory_gib`, `device` ("tpu v5p-64", "gpu H100") and `devices` of one task or host."""
        device = self.text("device")
        if device and device.split()[0] not in _KINDS:
            raise InvalidRequest(f"{self.place}: device is {device!r}; it must begin with gpu or tpu, e.g. 'gpu H100'")
        devices = self.count("devices", 1 if device else 0, 1 if device else 0)
        found = amount(self.number("cpu"), self.number("memory_gib", 0), device, devices)
        try:
            validate_resources(found)
        except InvalidRequest as error:
            raise InvalidRequest(f"{self.place}: {error}") from None
        return found

    def finish(self) -> None:
        """Raise InvalidRequest for an unknown name, so that typos are reported."""
        for name in self._values:
            if name not in self._known:
                raise InvalidRequest(f"{self.place}: {name!r} is unknown; known are {', '.join(self._known)}")
