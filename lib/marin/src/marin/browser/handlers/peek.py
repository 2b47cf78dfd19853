"""Excerpts of steps: the failure that ended a run, and the side panel of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from marin.browser.handlers.logs import MOST_NUMBERED, log_part
from marin.browser.handlers.step import read_object
from marin.browser.run_view import RunView
from marin.browser.site import Site, address, asked_path, job_address
from marin.output_files import INFO_FILE, LOG_FILE
from marin.recorded.deciding.metric_table import flat
from marin.recorded.deciding.run_steps import RunStep
from rigging.errors import MarinError, NotFound
from rigging.web.context import render
from rigging.web.pages import query_text

FAILED: Final = ("failed", "lost", "died")
_FAILURE_LINES: Final = 20
_PANEL_LINES: Final = 40
_PANEL_FILES: Final = 8
_MOST_VALUES: Final = 40


@dataclass(frozen=True, slots=True)
class LastLines:
    """The end of a log.

    Attributes:
        lines: Its last lines.
        first: The number of the first of them, from 1; None if the log is too long to count its lines.
    """

    lines: Sequence[str] = ()
    first: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The first step of a run that failed.

    Attributes:
        step: The step.
        log: The end of its log.
        log_address: The address of the log, or of the step without one; None outside the storage root.
        others: The number of other steps that failed.
    """

    step: RunStep
    log: LastLines
    log_address: str | None
    others: int


def failure_of(site: Site, view: RunView) -> Failure | None:
    """Return the failure of a run; None if no step failed."""
    failed = [step for step in view.steps if step.status in FAILED]
    if not failed:
        return None
    step = min(failed, key=lambda step: step.ended or float("inf"))
    name = site.outputs.name_of(step.path)
    if name is None:
        return Failure(step, LastLines(), None, len(failed) - 1)
    log = last_lines(site, f"{name}/{LOG_FILE}", _FAILURE_LINES)
    if not log.lines:
        return Failure(step, log, address("step", path=name, run=view.files.id), len(failed) - 1)
    mark = f"#L{log.first + len(log.lines) - 1}" if log.first else ""
    return Failure(step, log, address("log", path=name) + mark, len(failed) - 1)


def last_lines(site: Site, name: str, count: int) -> LastLines:
    """Return the last lines of a log; none if it cannot be read.

    Args:
        site: The pages.
        name: The log.
        count: The number of lines.
    """
    try:
        part = log_part(site.outputs, name, None)
        if part is None:
            return LastLines()
        lines = part.text.removesuffix("\n").split("\n") if part.text else []
        if part.size > MOST_NUMBERED or (part.start and not site.outputs.is_local):
            return LastLines(lines[-count:])
        first = site.lines.number_at(name, part.start)
    except MarinError:
        return LastLines()
    return LastLines(lines[-count:], first + max(0, len(lines) - count))


def panel(site: Site, request: Request) -> Response:
    """Show a step of a run beside its graph: state, figures, config, end of the log, files."""
    name, word = asked_path(request), query_text(request, "run", 300)
    _, view = site.run(word)
    step = view.step(site.outputs.path(name))
    if step is None:
        raise NotFound(f"run {word!r} has no step at {name[:100]!r}")
    info, _ = read_object(site.outputs, f"{name}/{INFO_FILE}")
    try:
        entries = site.outputs.entries(name)
        files = [entry for entry in entries.part(0, _PANEL_FILES) if not entry.base.startswith(".")]
    except NotFound:
        files = []
    return render(
        request,
        "marin/panel.html",
        step=step,
        name=name,
        run=view.files.id,
        config=list(flat(info.get("config") or {}))[:_MOST_VALUES],
        log=last_lines(site, f"{name}/{LOG_FILE}", _PANEL_LINES),
        files=files,
        job=job_address(site.jobs_url, step.log),
        address=address,
    )
