"""The list of runs, with columns that the viewer chooses."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from marin.browser.facts import RunFacts
from marin.browser.handlers.run import list_mark, title_of
from marin.browser.site import Site, address
from marin.recorded.deciding.run_names import RunFiles
from marin.recorded.deciding.run_notes import RunNotes
from marin.recorded.deciding.run_summary import STEP_ENDS, RunState, RunSummary
from rigging.errors import InvalidRequest
from rigging.web.context import is_fragment, render
from rigging.web.pages import query_text
from rigging.web.paging import Page, asked_page, page_number, page_of

_MOST_COLUMNS: Final = 12
_MOST_OFFERED: Final = 100
_USUAL_COLUMNS: Final = 3
_SORT_SECONDS: Final = 0.2
_OWN_ORDERS: Final = ("", "took")


@dataclass(frozen=True, slots=True)
class Row:
    """A run in the list.

    Attributes:
        run: The run.
        title: Its readable name.
        ends: The number of its steps for each outcome that occurs, with those that have none yet.
        notes: Its tags and note.
        cells: The values of the chosen columns, as text.
    """

    run: RunSummary
    title: str
    ends: Sequence[tuple[str, int]]
    notes: RunNotes
    cells: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Asked:
    """The parameters of a request for the list of runs."""

    text: str
    state: str
    tag: str
    columns: Sequence[str] | None
    sort: str
    descending: bool

    def address(self, **changes: object) -> str:
        """Return the address of the list with other parameters."""
        chosen = {} if self.columns is None else {"columns": "chosen", "col": list(self.columns)}
        order = "" if not self.sort and self.descending else "down" if self.descending else "up"
        known = {"q": self.text, "state": self.state, "tag": self.tag, **chosen, "sort": self.sort, "order": order}
        return address("runs", **{**known, **changes})

    def turned(self, column: str) -> str:
        """Return the address of the list sorted by a column: the largest first, or the other way on a second press."""
        is_down = not (column == self.sort and self.descending)
        return self.address(sort=column, order="down" if is_down else "up")

    def direction(self, column: str) -> str:
        """Return how the list is sorted by a column: "up", "down", or "" for another one."""
        return "" if column != self.sort else "down" if self.descending else "up"


def runs_page(site: Site, request: Request) -> Response:
    """List runs, newest first."""
    asked, seen = _asked(request), list_mark(site.index.runs())
    found = site.index.matching(asked.text, asked.state, asked.tag)
    found, unread = _sorted(site, found, asked)
    number = page_number(asked_page(request.query_params.get("page")), len(found))
    page = page_of(found, number)
    summaries = site.index.summaries(page.rows)
    # What a bucket's runs have is read only for columns that somebody chose.
    facts = site.facts.read(summaries) if asked.columns or site.outputs.is_local else []
    offered = _offered([each for each in facts if each is not None])
    columns = asked.columns if asked.columns is not None else _usual(facts, offered)
    if columns:  # what the reader sees stays on other pages, in another order, and in a copied address
        asked = replace(asked, columns=columns)
    notes = site.index.notes(page.rows)
    values = [each or RunFacts() for each in facts] or [RunFacts()] * len(summaries)
    rows = [
        Row(
            run, title_of(run), ends_of(run), notes.get(run.files.id, RunNotes()), [cell(own.value(c)) for c in columns]
        )
        for run, own in zip(summaries, values, strict=True)
    ]
    return render(
        request,
        "marin/runs_table.html" if is_fragment(request) else "marin/runs.html",
        prefix=site.outputs.root,
        now=time.time(),
        page=Page(rows, page.number, page.total, page.size),
        asked=asked,
        columns=columns,
        numeric=[all(is_number(own.value(name)) or own.value(name) is None for own in values) for name in columns],
        offered=offered,
        unread=unread,
        seen=seen,
        tags=sorted({tag for each in site.index.notes(site.index.runs()).values() for tag in each.tags}),
        states=[str(known) for known in RunState],
        is_empty=not found and not site.index.runs(),
        link=lambda number: asked.address(page=number),
    )


def _asked(request: Request) -> _Asked:
    state = query_text(request, "state", 40)
    if state and state not in {str(known) for known in RunState}:
        raise InvalidRequest(f"state {state!r}: must be one of {', '.join(RunState)}")
    columns = [name[:300] for name in dict.fromkeys(request.query_params.getlist("col")) if name][:_MOST_COLUMNS]
    sort = query_text(request, "sort", 300)
    return _Asked(
        text=query_text(request, "q", 300),
        state=state,
        tag=query_text(request, "tag", 40),
        columns=columns if columns or "columns" in request.query_params else None,
        sort=sort,
        descending=query_text(request, "order", 10) != "up",
    )


def _sorted(site: Site, runs: list[RunFiles], asked: _Asked) -> tuple[list[RunFiles], int]:
    """Return runs in the requested order, and the number of those that there was no time to read; they come last."""
    if not asked.sort:
        return (runs if asked.descending else runs[::-1]), 0
    summaries = site.index.summaries(runs)
    if asked.sort in _OWN_ORDERS:
        return _ordered(runs, [run.seconds for run in summaries], asked.descending), 0
    facts = site.facts.read(summaries, _SORT_SECONDS)
    values = [None if each is None else each.value(asked.sort) for each in facts]
    return _ordered(runs, values, asked.descending), facts.count(None)


def _ordered(runs: Sequence[RunFiles], values: Sequence[Any], descending: bool) -> list[RunFiles]:
    known = [(value, run) for value, run in zip(values, runs, strict=True) if value is not None]
    numeric = all(is_number(value) for value, _ in known)
    known.sort(key=lambda pair: pair[0] if numeric else str(pair[0]), reverse=descending)
    return [run for _, run in known] + [run for value, run in zip(values, runs, strict=True) if value is None]


def _usual(facts: Sequence[RunFacts | None], offered: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the columns to show where none are chosen: config fields in which the runs differ, and metrics, first
    those in which they differ.
    """
    differ = {
        name
        for names in offered.values()
        for name in names
        if len({repr(each.value(name)) for each in facts if each and each.value(name) is not None}) > 1
    }
    fields = [name for name in offered["Config"] if name in differ and name not in offered["Metrics"]]
    metrics = sorted(offered["Metrics"], key=lambda name: name not in differ)
    return [*fields[:_USUAL_COLUMNS], *metrics[:_USUAL_COLUMNS]]


def _offered(facts: Sequence[RunFacts]) -> dict[str, list[str]]:
    """Return the columns that runs have values for, the commonest first."""
    kinds: Mapping[str, Counter[str]] = {"Metrics": Counter(), "Config": Counter()}
    for each in facts:
        kinds["Metrics"].update(each.metrics.keys())
        kinds["Config"].update(each.config.keys())
    return {kind: [name for name, _ in found.most_common(_MOST_OFFERED)] for kind, found in kinds.items()}


def is_number(value: Any) -> bool:
    """Return whether a value is a number, other than True and False."""
    return type(value) in (int, float)


def cell(value: Any) -> str:
    """Return a value as a cell of a table; "" for None."""
    return "" if value is None else f"{value:.5g}" if type(value) is float else str(value)


def ends_of(run: RunSummary) -> list[tuple[str, int]]:
    """Return the number of a run's steps for each outcome that occurs, and of those without one as `unfinished`."""
    found = [(end, run.ends[end]) for end in STEP_ENDS if run.ends and run.ends.get(end)]
    rest = (run.steps or 0) - sum(count for _, count in found)
    return [*found, ("unfinished", rest)] if rest > 0 else found


def from_info_file(site: Site, request: Request) -> Response:
    """Redirect from a run's info file, the target of `get_experiment_url`, to its page."""
    path = query_text(request, "path")
    name = site.index.place.name_of(path)
    if name is None:
        raise InvalidRequest(f"path {path[:200]!r} is not an info file of a run in {site.index.place.root}")
    return RedirectResponse(address("run", run=site.index.find(name).id), 303)
