"""The page of a run: facts, graph and steps, updated live."""

from __future__ import annotations

import asyncio
import fnmatch
import json
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from marin.browser.follow import encode_run_events, follow_file, start_of_id
from marin.browser.handlers.runs import ends_of
from marin.browser.picture import GROUPINGS, picture_of
from marin.browser.site import Site, address, job_address
from marin.recorded.deciding.dag import STATUSES, Node
from marin.recorded.deciding.run_names import RunFiles
from marin.recorded.deciding.run_steps import RunStep
from marin.recorded.deciding.run_summary import RunState, RunSummary
from rigging.errors import InvalidRequest, NotFound
from rigging.web.context import is_fragment, render
from rigging.web.events import encode_event, event_response, last_event_id
from rigging.web.pages import query_text
from rigging.web.paging import Page, asked_page, page_of

_MOST_NODES = 4000
_SAME_STEPS = 20
_LIVE = (RunState.RUNNING, RunState.UNFINISHED)
_BEGINNING_SECONDS = 600.0


def run_page(site: Site, request: Request) -> Response:
    """Show a run."""
    summary, view = site.run(query_text(request, "run", 300))
    run = summary.files
    text, status = query_text(request, "q", 300), query_text(request, "status", 40)
    grouping = query_text(request, "group", 20) or "like"
    if grouping not in GROUPINGS:
        raise InvalidRequest(f"group {grouping[:40]!r}: must be one of {', '.join(GROUPINGS)}")
    found = [
        (view.numbers[step.path], step)
        for step in view.steps
        if (not status or (step.status or "-") == status) and _is_meant(step, text)
    ]
    page = page_of(found, asked_page(request.query_params.get("page")))
    rows = [(number, step, _step_address(site, run.id, step), _job(site, step)) for number, step in page.rows]
    shown: dict[str, Any] = {
        "run": run,
        "page": Page(rows, page.number, page.total, page.size),
        "query": text,
        "status": status,
        "grouping": grouping,
        "now": time.time(),
        "link": lambda number: address("run", run=run.id, q=text, status=status, group=_given(grouping), page=number),
    }
    if is_fragment(request):
        return render(request, "marin/steps_table.html", **shown)
    picture = picture_of(view.steps, grouping, lambda node: _node_address(site, run.id, grouping, node))
    others = [
        other.id for other in site.index.runs() if other.id != run.id and _script(other.stem) == _script(run.stem)
    ]
    return render(
        request,
        "marin/run.html",
        **shown,
        view=view,
        summary=summary,
        ends=ends_of(summary),
        counts=[
            (word, view.counts[word])
            for word in (*STATUSES, *sorted(set(view.counts) - set(STATUSES)))
            if view.counts[word]
        ],
        picture=picture if picture.nodes <= _MOST_NODES else None,
        groupings=GROUPINGS,
        group_link=lambda word: address("run", run=run.id, group=_given(word)),
        status_link=lambda word: address("run", run=run.id, status=word, group=_given(grouping)) + "#steps",
        others=others[:_SAME_STEPS],
        statuses=json.dumps([[step.status or "-", step.name] for step in view.steps]),
        is_live=_may_change(site, summary),
        position=view.position,
    )


def _may_change(site: Site, summary: RunSummary) -> bool:
    """Return whether a run's records may still change: a bucket receives the event log half a minute after the info
    file."""
    if summary.files.events is not None:
        return summary.state in _LIVE
    try:
        written = None if summary.files.info is None else site.index.place.entry(summary.files.info).modified
    except NotFound:
        return False
    return written is not None and time.time() - written < _BEGINNING_SECONDS


def _given(grouping: str) -> str:
    return "" if grouping == "like" else grouping


def _script(stem: str) -> str:
    return stem.rpartition("-")[0]


def _is_meant(step: RunStep, text: str) -> bool:
    """Return whether a step's name or path contains all words, with `*` and `?` as wildcards."""
    told = f"{step.name} {step.path}".lower()
    for word in text.lower().split():
        if "*" in word or "?" in word:
            pattern = word.replace("[", "[[]")
            if not fnmatch.fnmatchcase(step.name.lower(), pattern):
                return False
        elif word not in told:
            return False
    return True


def _step_address(site: Site, run: str, step: RunStep) -> str | None:
    name = site.outputs.name_of(step.path)
    return None if name is None else address("step", path=name, run=run)


def _job(site: Site, step: RunStep) -> str | None:
    return job_address(site.jobs_url, step.log)


def _node_address(site: Site, run: str, grouping: str, node: Node) -> str:
    """Return the link of a node: to its step, or to the list of steps of a family."""
    if len(node.paths) == 1:
        name = site.outputs.name_of(node.paths[0])
        if name is not None:
            return address("step", path=name, run=run)
    pattern = node.label.rpartition(" (")[0] if len(node.paths) > 1 else node.label
    return address("run", run=run, q=pattern, group=_given(grouping)) + "#steps"


async def run_events(site: Site, request: Request) -> Response:
    """Stream the events of a run's log from a position on to its page."""
    run = await anyio.to_thread.run_sync(site.index.find, query_text(request, "run", 300))
    if run.events is None:
        return event_response(_until_it_has_events(site, run))
    view = await anyio.to_thread.run_sync(site.views.read, run, None)
    start = start_of_id(last_event_id(request), start_of_id(request.query_params.get("at"), view.position))

    async def is_over() -> bool:
        summary = (await anyio.to_thread.run_sync(site.index.summaries, [run]))[0]
        return summary.state not in _LIVE

    stream = follow_file(
        site.index.place,
        run.events,
        start,
        encode_run_events(view.numbers),
        pace=site.pace,
        is_over=is_over,
        is_stopping=lambda: site.is_stopping,
    )
    return event_response(stream)


async def _until_it_has_events(site: Site, run: RunFiles) -> AsyncIterator[bytes]:
    """Reload the page of a run without an event log as soon as the log exists."""
    yield b"retry: 1000\n\n" + encode_event("hello", str(site.pace.alive))
    quiet = 0.0
    while not site.is_stopping:
        now = await anyio.to_thread.run_sync(site.index.find, run.stem)
        if now.events is not None:
            yield encode_event("run", "grown")
            return
        await asyncio.sleep(_look(site))
        quiet += _look(site)
        if quiet >= site.pace.alive:
            quiet = 0.0
            yield encode_event("alive", "")


def _look(site: Site) -> float:
    """Return the polling interval of the list of runs, in seconds."""
    return site.pace.look or (0.3 if site.index.place.is_local else 15.0)


async def list_events(site: Site, request: Request) -> Response:
    """Notify the list of runs when a run was added or removed."""
    del request
    look = _look(site)

    async def stream() -> AsyncIterator[bytes]:
        known = _ids(await anyio.to_thread.run_sync(site.index.runs))
        yield b"retry: 1000\n\n" + encode_event("hello", str(site.pace.alive))
        quiet = 0.0
        while not site.is_stopping:
            await asyncio.sleep(look)
            quiet += look
            now = _ids(await anyio.to_thread.run_sync(site.index.runs))
            if now != known:
                known, quiet = now, 0.0
                yield encode_event("runs", str(len(now)))
            elif quiet >= site.pace.alive:
                quiet = 0.0
                yield encode_event("alive", "")

    return event_response(stream())


def _ids(runs: Sequence[object]) -> tuple[int, object]:
    return len(runs), runs[0] if runs else None
