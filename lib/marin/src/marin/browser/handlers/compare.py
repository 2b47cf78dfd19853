"""The comparison of runs: what differs, durations, results and curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from marin.browser.handlers.metrics import curve_series, measured_steps
from marin.browser.handlers.run import title_of
from marin.browser.handlers.runs import cell
from marin.browser.run_view import RunView
from marin.browser.site import Site, address
from marin.recorded.deciding.run_diff import changed_steps, diff_runs
from marin.recorded.deciding.run_summary import RunSummary
from rigging.errors import InvalidRequest
from rigging.web.context import render
from rigging.web.pages import query_text

MOST_RUNS: Final = 50
_MOST_OFFERED: Final = 100
_MOST_CHANGED: Final = 200
_MOST_DURATIONS: Final = 30
_MOST_METRICS: Final = 200


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run in a comparison.

    Attributes:
        summary: The run.
        title: Its readable name.
        label: A name that no other run of the comparison has.
    """

    summary: RunSummary
    title: str
    label: str


def asked_runs(site: Site, request: Request) -> list[str]:
    """Return the names of the runs in a request, without repetitions, the oldest first.

    Raises:
        InvalidRequest: There are too many.
    """
    words = [query_text(request, "before", 300).strip(), query_text(request, "after", 300).strip()]
    ticked = [site.index.find(word[:300]) for word in request.query_params.getlist("run") if word.strip()]
    found = [site.index.find(word) for word in words if word] + sorted(ticked, key=lambda run: run.started or 0.0)
    names = list(dict.fromkeys(run.id for run in found))
    if len(names) > MOST_RUNS:
        raise InvalidRequest(f"{len(names)} runs: at most {MOST_RUNS} can be compared")
    return names


def compare_page(site: Site, request: Request) -> Response:
    """Show the differences between two or more runs."""
    site.curves.give_way()
    names = asked_runs(site, request)
    before, after = query_text(request, "before", 300).strip(), query_text(request, "after", 300).strip()
    shown: dict[str, Any] = {
        "before": before or (names[0] if names and not after else ""),
        "after": after or (names[1] if len(names) > 1 else ""),
        "address": address,
        "runs": [],
    }
    if len(names) < 2:
        known = site.index.summaries(site.index.runs()[:_MOST_OFFERED])
        named = [(run.files.id, title_of(run)) for run in known]
        return render(request, "marin/compare.html", **shown, known=named)
    summaries = site.index.summaries([site.index.find(name) for name in names])
    infos = [site.views.info(run.files) for run in summaries]
    views = [site.views.read(run.files, run.state) for run in summaries]
    runs = labelled(summaries)
    found = [measured_steps(site, view) for view in views]
    measured = [steps for steps, _ in found]
    finals = [{name: value for each in steps for name, value in each.finals.items()} for steps in measured]
    metrics = list(dict.fromkeys(name for each in finals for name in each))[:_MOST_METRICS]
    steps = changed_steps(infos)
    shown.update(
        runs=runs,
        steps=steps[:_MOST_CHANGED],
        more_steps=max(0, len(steps) - _MOST_CHANGED),
        durations=_durations(views),
        results=[(name, [cell(each.get(name)) for each in finals]) for name in metrics],
        series=curve_series(
            [
                (each, run.label if len(drawn) == 1 else f"{run.label}, {each.step.name}")
                for run, steps in zip(runs, measured, strict=True)
                for drawn in [[each for each in steps if each.curves]]
                for each in drawn
            ]
        ),
        is_whole=all(is_whole for _, is_whole in found),
        tags=site.index.notes([run.files for run in summaries]),
        step_link=_step_linker(site),
        **(_details(infos[0], infos[1]) if len(names) == 2 else {"diff": None}),
    )
    return render(request, "marin/compare.html", **shown)


def labelled(runs: Sequence[RunSummary]) -> list[ComparedRun]:
    """Return runs with distinct labels: their titles, with their names if titles are equal."""
    titles = [title_of(run) for run in runs]
    stems = [run.files.stem for run in runs]
    return [
        ComparedRun(
            run,
            title,
            title
            if titles.count(title) == 1
            else f"{title} ({run.files.stem if stems.count(run.files.stem) == 1 else run.files.id})",
        )
        for run, title in zip(runs, titles, strict=True)
    ]


def _durations(views: Sequence[RunView]) -> list[tuple[str, list[float | None]]]:
    """Return the duration of each step in each run; the largest differences come first."""
    names = dict.fromkeys(step.name for view in views for step in view.steps)
    tables = [{step.name: step.seconds for step in view.steps if step.status != "cached"} for view in views]
    rows = [(name, [table.get(name) for table in tables]) for name in names]
    known = [(name, row) for name, row in rows if sum(each is not None for each in row) > 1]
    known.sort(key=lambda item: -_spread(item[1]))
    return known[:_MOST_DURATIONS]


def _spread(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return max(known) - min(known)


def _details(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    found = diff_runs(before, after)
    return {"diff": found, "changed": found.changed[:_MOST_CHANGED], "left_out": len(found.changed) - _MOST_CHANGED}


def _step_linker(site: Site) -> object:
    def link(path: str) -> str | None:
        name = site.outputs.name_of(path)
        return None if name is None else address("step", path=name)

    return link
