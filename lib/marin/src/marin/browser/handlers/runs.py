"""The list of runs, and the comparison of two."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from marin.browser.site import Site, address
from marin.recorded.deciding.run_diff import diff_runs
from marin.recorded.deciding.run_summary import STEP_ENDS, RunState, RunSummary
from rigging.errors import InvalidRequest
from rigging.web.context import is_fragment, render
from rigging.web.pages import query_text
from rigging.web.paging import Page, asked_page, page_number, page_of

_MOST_CHANGED = 200


def runs_page(site: Site, request: Request) -> Response:
    """List runs, newest first."""
    text, state = query_text(request, "q", 300), query_text(request, "state", 40)
    if state and state not in {str(known) for known in RunState}:
        raise InvalidRequest(f"state {state!r}: must be one of {', '.join(RunState)}")
    found = site.index.matching(text, state)
    number = page_number(asked_page(request.query_params.get("page")), len(found))
    page = page_of(found, number)
    rows = site.index.summaries(page.rows)
    return render(
        request,
        "marin/runs_table.html" if is_fragment(request) else "marin/runs.html",
        prefix=site.outputs.root,
        now=time.time(),
        page=Page([(row, ends_of(row)) for row in rows], page.number, page.total, page.size),
        query=text,
        state=state,
        states=[str(known) for known in RunState],
        is_empty=not found and not site.index.runs(),
        link=lambda number: address("runs", q=text, state=state, page=number),
    )


def ends_of(run: RunSummary) -> list[tuple[str, int]]:
    """Return the number of a run's steps for each outcome that occurs."""
    return [(end, run.ends[end]) for end in STEP_ENDS if run.ends and run.ends.get(end)]


def compare_page(site: Site, request: Request) -> Response:
    """Show the differences between two runs."""
    before, after = query_text(request, "before", 300).strip(), query_text(request, "after", 300).strip()
    shown: dict[str, Any] = {
        "before": before,
        "after": after,
        "runs": [run.id for run in site.index.runs()[:100]],
        "diff": None,
    }
    if not before or not after:
        return render(request, "marin/compare.html", **shown)
    one, other = site.index.find(before), site.index.find(after)
    found = diff_runs(site.views.info(one), site.views.info(other))
    shown.update(
        diff=found,
        before=one.id,
        after=other.id,
        changed=found.changed[:_MOST_CHANGED],
        left_out=len(found.changed) - _MOST_CHANGED,
        share_info=one.stem == other.stem,
        step_link=_step_linker(site),
    )
    return render(request, "marin/compare.html", **shown)


def _step_linker(site: Site) -> object:
    def link(path: str) -> str | None:
        name = site.outputs.name_of(path)
        return None if name is None else address("step", path=name)

    return link


def from_info_file(site: Site, request: Request) -> Response:
    """Redirect from a run's info file, the target of `get_experiment_url`, to its page."""
    path = query_text(request, "path")
    name = site.index.place.name_of(path)
    if name is None:
        raise InvalidRequest(f"path {path[:200]!r} is not an info file of a run in {site.index.place.root}")
    return RedirectResponse(address("run", run=site.index.find(name).id), 303)
