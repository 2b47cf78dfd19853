"""Metrics of outputs: the charts of a step's page, and the results of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from marin.browser.confined import Confined
from marin.browser.handlers.step import read_object
from marin.browser.site import Site, address, asked_path
from marin.output_files import INFO_FILE
from marin.recorded.deciding.metric_table import MetricRow, flat, metric_table
from marin.recorded.deciding.thinning import thinned
from rigging.errors import InvalidRequest, MarinError
from rigging.web.context import render
from rigging.web.pages import query_text

MOST_POINTS: Final = 2000
_MOST_STEPS: Final = 200
_POINTS_OF_MANY: Final = 500
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
    from marin.recorded.reading.store import is_in_another_region

    name = asked_path(request)
    site.outputs.entry(name)  # raises for what is not there
    if is_in_another_region(site.outputs.root):
        return JSONResponse({})
    curves, finals = read_metrics(ConfinedFiles(site.outputs, name))
    shown = sorted(curves.items())[:_MOST_CURVES]
    drawn = {metric: thinned(sorted(curve.items()), MOST_POINTS) for metric, curve in shown}
    single = {metric: ([0], [value]) for metric, value in finals.items() if metric not in curves}
    return JSONResponse({**drawn, **single})


def results(site: Site, request: Request) -> Response:
    """Show the metrics of a run's first steps: a table beside the values of the configs that differ, and curves."""
    from marin.recorded.reading.metrics import Curves, read_metrics
    from marin.recorded.reading.store import is_in_another_region

    run = query_text(request, "run", 300)
    sort, descending = query_text(request, "sort", 300), query_text(request, "order", 10) == "down"
    _, view = site.run(run)
    rows: list[MetricRow] = []
    curves: dict[str, Curves] = {}
    for step in () if is_in_another_region(site.outputs.root) else view.steps[:_MOST_STEPS]:
        name = site.outputs.name_of(step.path)
        if name is None:
            continue
        found, finals = read_metrics(ConfinedFiles(site.outputs, name))
        if finals:
            info, _ = read_object(site.outputs, f"{name}/{INFO_FILE}")
            rows.append(MetricRow(step.name, step.path, dict(flat(info.get("config") or {})), finals))
            curves[step.path] = found
    try:
        table = metric_table(rows, sort=sort, descending=descending)
    except InvalidRequest:  # a metric that is gone since
        sort, table = "", metric_table(rows)
    drawn: dict[str, list[Any]] = {}
    for row in table.rows:
        for metric, curve in curves[row.path].items():
            drawn.setdefault(metric, []).append([table.label(row), *thinned(sorted(curve.items()), _POINTS_OF_MANY)])
    return render(
        request,
        "marin/results.html",
        run=run,
        table=table,
        sort=sort,
        descending=descending,
        address=address,
        step_address=lambda row: address("step", path=site.outputs.name_of(row.path), run=run),
        curves=dict(sorted(drawn.items())[:_MOST_CURVES]),
    )
