"""Metrics of outputs: the charts of a step's page, and the results of a run."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from marin.browser.confined import ConfinedFiles
from marin.browser.handlers.step import read_object
from marin.browser.run_view import RunView
from marin.browser.site import Site, address, asked_path
from marin.output_files import ARTIFACT_FILE, INFO_FILE, METRICS_FILE
from marin.recorded.deciding.metric_table import MetricRow, flat, metric_table
from marin.recorded.deciding.run_steps import RunStep
from marin.recorded.deciding.thinning import Points, curve_of, on_columns, thinned
from rigging.errors import InvalidRequest
from rigging.web.context import render
from rigging.web.pages import query_text
from rigging.web.paging import asked_page

MOST_POINTS: Final = 2000
_MOST_STEPS: Final = 200
_MOST_CURVES: Final = 200
_MOST_SERIES: Final = 100
_NO_CURVE: Final = curve_of(((), ()))


def metrics(site: Site, request: Request) -> Response:
    """Return the steps and values of each metric of an output, with few enough points to draw."""
    from marin.recorded.reading.metrics import last_values
    from marin.recorded.reading.store import is_in_another_region

    name = asked_path(request)
    site.outputs.entry(name)  # raises for what is not there
    if is_in_another_region(site.outputs.root):
        return JSONResponse({"metrics": {}, "whole": True})
    found = site.curves.read(name)
    returned = last_values(b"", ConfinedFiles(site.outputs, name).end(ARTIFACT_FILE))
    shown: dict[str, Points] = {metric: ([0], [value]) for metric, value in returned.items()}
    shown |= {
        metric: thinned(curve.points, MOST_POINTS) for metric, curve in sorted(found.curves.items())[:_MOST_CURVES]
    }
    drawn = {metric: [[*steps], [*values]] for metric, (steps, values) in shown.items()}
    return JSONResponse({"metrics": drawn, "whole": found.is_whole})


@dataclass(frozen=True, slots=True)
class Measured:
    """A step with metrics.

    Attributes:
        step: The step.
        output: The name of its output.
        finals: Its final metrics.
        curves: The names of those that have a curve.
    """

    step: RunStep
    output: str
    finals: Mapping[str, float]
    curves: Collection[str]


def measured_steps(site: Site, view: RunView, seconds: float = math.inf) -> tuple[list[Measured], bool]:
    """Return the first steps of a run that recorded metrics, and whether these are all.

    Of a long `.executor_metrics` only the end is read. Long files of TensorBoard and W&B are read in the background.

    Args:
        site: The pages.
        view: The run.
        seconds: Read no further steps after this time.
    """
    from marin.recorded.reading.metrics import last_values
    from marin.recorded.reading.store import is_in_another_region

    measured: list[Measured] = []
    is_whole = True
    deadline = time.monotonic() + seconds
    site.curves.give_way()
    for step in () if is_in_another_region(site.outputs.root) else view.steps[:_MOST_STEPS]:
        output = site.outputs.name_of(step.path)
        if output is None or not view.is_own(step, output, site.outputs):
            continue
        if time.monotonic() > deadline:
            return measured, False
        files = ConfinedFiles(site.outputs, output)
        returned = last_values(b"", files.end(ARTIFACT_FILE))
        if end := files.end(METRICS_FILE):
            logged = last_values(end)
        else:
            found = site.curves.read(output)
            is_whole = is_whole and found.is_whole
            logged = {name: curve.points[1][-1] for name, curve in found.curves.items()}
        if logged or returned:
            measured.append(Measured(step, output, {**logged, **returned}, logged.keys()))
    return measured, is_whole


def curve_series(measured: Sequence[tuple[Measured, str]]) -> dict[str, list[list[str]]]:
    """Return the output and the label of each curve, by metric, for a page's charts."""
    found: dict[str, list[list[str]]] = {}
    for each, label in measured:
        for metric in each.curves:
            series = found.setdefault(metric, [])
            if len(series) < _MOST_SERIES:
                series.append([each.output, label])
    return dict(sorted(found.items())[:_MOST_CURVES])


def curves(site: Site, request: Request) -> Response:
    """Return a metric of outputs between two steps, with few enough points to draw."""
    metric = query_text(request, "metric", 300)
    outputs = list(dict.fromkeys(request.query_params.getlist("output")))[:_MOST_SERIES]
    found = [site.curves.read(name) for name in outputs if site.outputs.path(name)]
    columns = min(max(asked_page(request.query_params.get("columns")), 10), MOST_POINTS)
    first, last = (_number(request.query_params.get(name)) for name in ("from", "to"))
    steps, values = on_columns([each.curves.get(metric, _NO_CURVE) for each in found], first, last, columns)
    whole = "true" if all(each.is_whole for each in found) else "false"
    lines = ",".join(map(_numbers, values))
    return Response(f'{{"steps":{_numbers(steps)},"values":[{lines}],"whole":{whole}}}', media_type="application/json")


def _numbers(values: Sequence[float | None]) -> str:
    """Return numbers as JSON, with so many digits as a chart shows: half the size of all of them."""
    return f"[{','.join(['null' if value is None else f'{value:.9g}' for value in values])}]"


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "nan")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def results(site: Site, request: Request) -> Response:
    """Show the metrics of a run's first steps: a table beside the values of the configs that differ, and curves."""
    _, view = site.run(query_text(request, "run", 300))
    sort, descending = query_text(request, "sort", 300), query_text(request, "order", 10) == "down"
    return render(
        request,
        "marin/results.html",
        run=view.files,
        address=address,
        **results_of(site, view, sort, descending=descending),
    )


def results_of(
    site: Site, view: RunView, sort: str = "", *, descending: bool = False, seconds: float = math.inf
) -> dict[str, Any]:
    """Return the values that the template of results shows.

    Args:
        site: The pages.
        view: The run.
        sort: The metric or config value to sort by, if any.
        descending: Whether the largest comes first.
        seconds: As in `measured_steps`.
    """
    known, is_whole = measured_steps(site, view, seconds)
    measured = {each.step.path: each for each in known}
    rows = []
    for path, each in measured.items():
        info, _ = read_object(site.outputs, f"{each.output}/{INFO_FILE}")
        rows.append(MetricRow(each.step.name, path, dict(flat(info.get("config") or {})), each.finals))
    try:
        table = metric_table(rows, sort=sort, descending=descending)
    except InvalidRequest:  # a metric that is gone since
        sort, table = "", metric_table(rows)
    return {
        "table": table,
        "is_whole": is_whole,
        "sort": sort,
        "descending": descending,
        "step_address": lambda row: address("step", path=measured[row.path].output, run=view.files.id),
        "series": curve_series([(measured[row.path], table.label(row)) for row in table.rows]),
    }
