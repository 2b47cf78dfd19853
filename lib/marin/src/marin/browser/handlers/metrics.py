"""The metrics of a step's output, for the charts of its page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from marin.browser.confined import Confined
from marin.browser.site import Site, asked_path
from marin.recorded.deciding.thinning import thinned
from rigging.errors import MarinError

MOST_POINTS: Final = 2000
_MOST_CURVES: Final = 200
_MOST_NAMES: Final = 1000
_MOST_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class ConfinedFiles:
    """The files of an output below the root.

    Attributes:
        place: The root.
        output: The output's name.
    """

    place: Confined
    output: str

    def names(self, directory: str = "") -> list[str]:
        """Return the first names in a directory; [] if it does not exist."""
        try:
            found = self.place.entries(self._name(directory) if directory else self.output)
        except MarinError:
            return []
        return [entry.base for entry in found.part(0, _MOST_NAMES)]

    def read(self, name: str) -> bytes | None:
        """Return a file's content; None if it does not exist, or leads out of the root."""
        try:
            return self.place.read(self._name(name), 0, _MOST_BYTES)
        except MarinError:
            return None

    def size(self, name: str) -> int:
        """Return a file's size; 0 if it does not exist."""
        try:
            return self.place.size(self._name(name)) or 0
        except MarinError:
            return 0

    def _name(self, name: str) -> str:
        return f"{self.output}/{name}"


def metrics(site: Site, request: Request) -> Response:
    """Return the steps and values of each metric, with few enough points to draw."""
    from marin.recorded.reading.metrics import read_metrics

    name = asked_path(request)
    site.outputs.entry(name)  # raises for what is not there
    curves, finals = read_metrics(ConfinedFiles(site.outputs, name))
    shown = sorted(curves.items())[:_MOST_CURVES]
    drawn = {metric: thinned(sorted(curve.items()), MOST_POINTS) for metric, curve in shown}
    single = {metric: ([0], [value]) for metric, value in finals.items() if metric not in curves}
    return JSONResponse({**drawn, **single})
