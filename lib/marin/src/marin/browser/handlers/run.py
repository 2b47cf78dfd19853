"""The page of a run: its head, and a tab each for graph, timeline, steps, results and configs. Updated live."""

from __future__ import annotations

import asyncio
import fnmatch
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from marin.browser.follow import encode_run_events, follow_file, start_of_id
from marin.browser.handlers.metrics import results_of
from marin.browser.handlers.peek import failure_of
from marin.browser.picture import GROUPINGS, picture_of
from marin.browser.run_view import RunView
from marin.browser.site import Site, address, job_address
from marin.recorded.deciding.dag import STATUSES, Node
from marin.recorded.deciding.metric_table import flat
from marin.recorded.deciding.run_names import RunFiles
from marin.recorded.deciding.run_notes import RunNotes
from marin.recorded.deciding.run_steps import RunStep
from marin.recorded.deciding.run_summary import RunState, RunSummary
from marin.recorded.deciding.run_times import timeline_of
from rigging.errors import InvalidRequest, NotFound
from rigging.web.context import is_fragment, render
from rigging.web.events import encode_event, event_response, last_event_id
from rigging.web.pages import query_text
from rigging.web.paging import Page, asked_page, page_of

TABS: Final = {"graph": "Graph", "timeline": "Timeline", "steps": "Steps", "results": "Results", "config": "Config"}
_BAR: Final = (
    *("succeeded", "cached", "running", "retrying", "failed", "lost", "died", "stopped", "dep_failed", "queued", "-"),
)
_MOST_NODES: Final = 4000
_MOST_BARS: Final = 300
_MOST_CONFIGS: Final = 100
_MOST_VALUES: Final = 200
_MOST_OPEN: Final = 60
_LONGEST_VALUE: Final = 500
_LONGEST_TITLE: Final = 120
_LIVE = (RunState.RUNNING, RunState.UNFINISHED)
_BEGINNING_SECONDS = 600.0
_RESULTS_SECONDS: Final = 0.25


def run_page(site: Site, request: Request) -> Response:
    """Show a run, or the part of its page that changes."""
    summary, view = site.run(query_text(request, "run", 300))
    tab = _tab(request)
    shown: dict[str, Any] = {
        "run": summary.files,
        "view": view,
        "summary": summary,
        "now": time.time(),
        "address": address,
        "tab": tab,
        "tabs": [(word, title, _tab_address(summary, word), None) for word, title in TABS.items()],
        "title": title_of(summary),
        "nothing": "not started" if summary.files.events else "not recorded",
        "is_live": _may_change(site, summary),
        "job_link": job_address(site.jobs_url, f"job {summary.job}" if summary.job else None),
    }
    if is_fragment(request) and query_text(request, "part", 10) == "head":
        return render(request, "marin/run_head.html", **shown, **_head(site, summary, view))
    parts = {"graph": _graph, "steps": _steps, "timeline": _timeline, "config": _config, "results": _results}
    shown.update(parts[tab](site, request, view))
    if is_fragment(request):
        return render(request, f"marin/{'timeline' if tab == 'timeline' else 'steps_table'}.html", **shown)
    return render(request, "marin/run.html", **shown, **_head(site, summary, view), position=view.position)


def title_of(run: RunSummary) -> str:
    """Return a readable name of a run: the first line of its description, or its script's name."""
    words = (run.description or "").strip().partition("\n")[0]
    return words[:_LONGEST_TITLE] or _script(run.files.stem) or run.files.id


def _tab(request: Request) -> str:
    tab = query_text(request, "tab", 20)
    if not tab:
        return "steps" if any(request.query_params.get(name) for name in ("q", "status", "page")) else "graph"
    if tab not in TABS:
        raise InvalidRequest(f"tab {tab[:40]!r}: must be one of {', '.join(TABS)}")
    return tab


def _tab_address(summary: RunSummary, tab: str) -> str:
    return address("run", run=summary.files.id, tab="" if tab == "graph" else tab)


def _head(site: Site, summary: RunSummary, view: RunView) -> dict[str, Any]:
    """Return what the head of the page shows: counts of states, what failed, when and where it ran."""
    known = [(word, view.counts[word]) for word in _BAR if view.counts[word]]
    rest = [(word, count) for word, count in sorted(view.counts.items()) if word not in _BAR]
    done = view.counts["succeeded"] + view.counts["cached"]
    return {
        "notes": site.index.notes([summary.files]).get(summary.files.id, RunNotes()),
        "counts": [*known, *rest],
        "words": [f"{done} of {len(view.steps)} steps done"] if view.steps else [],
        "failure": failure_of(site, view),
        "status_link": lambda word: address("run", run=summary.files.id, tab="steps", status=word),
    }


def _graph(site: Site, request: Request, view: RunView) -> dict[str, Any]:
    run, grouping = view.files.id, query_text(request, "group", 20) or "like"
    if grouping not in GROUPINGS:
        raise InvalidRequest(f"group {grouping[:40]!r}: must be one of {', '.join(GROUPINGS)}")
    picture = picture_of(
        view.steps,
        grouping,
        lambda node: _node_address(site, run, node),
        lambda node: _panel_address(site, run, node.paths[0]) if len(node.paths) == 1 else None,
    )
    return {
        "picture": picture if picture.nodes <= _MOST_NODES else None,
        "grouping": grouping,
        "groupings": GROUPINGS,
        "group_link": lambda word: address("run", run=run, group="" if word == "like" else word),
        "statuses": json.dumps([[step.status or "-", step.name] for step in view.steps]),
    }


def _steps(site: Site, request: Request, view: RunView) -> dict[str, Any]:
    run = view.files.id
    text, status = query_text(request, "q", 300), query_text(request, "status", 40)
    found = [
        (view.numbers[step.path], step)
        for step in view.steps
        if (not status or (step.status or "-") == status) and _is_meant(step, text)
    ]
    page = page_of(found, asked_page(request.query_params.get("page")))
    rows = [(number, step, _step_address(site, run, step), _job(site, step)) for number, step in page.rows]
    return {
        "page": Page(rows, page.number, page.total, page.size),
        "query": text,
        "status": status,
        "states": [word for word in (*STATUSES, *sorted(set(view.counts) - set(STATUSES))) if view.counts[word]],
        "link": lambda number: address("run", run=run, tab="steps", q=text, status=status, page=number),
    }


def _timeline(site: Site, request: Request, view: RunView) -> dict[str, Any]:
    del request
    found = timeline_of(view.steps, time.time())
    bars = found.bars
    if len(bars) > _MOST_BARS:
        longest = {bar.step.path for bar in sorted(bars, key=lambda bar: (bar.is_critical, bar.seconds))[-_MOST_BARS:]}
        bars = tuple(bar for bar in bars if bar.step.path in longest)
    return {
        "timeline": found,
        "bars": [(bar, _step_address(site, view.files.id, bar.step)) for bar in bars],
        "panel_link": lambda step: _panel_address(site, view.files.id, step.path),
    }


def _config(site: Site, request: Request, view: RunView) -> dict[str, Any]:
    del request
    recorded = [] if view.problem else [step for step in site.views.info(view.files)["steps"] if isinstance(step, dict)]
    values = [
        (str(step.get("name", "")), site.outputs.name_of(str(step.get("output_path", ""))), _values(step))
        for step in recorded[:_MOST_CONFIGS]
    ]
    is_short = sum(len(found) for _, _, found in values) <= _MOST_OPEN
    return {"configs": values, "left_out": len(recorded) - len(values), "is_open": is_short}


def _values(step: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = list(flat(step.get("config") or {}))
    return [(name, str(value)[:_LONGEST_VALUE]) for name, value in found[:_MOST_VALUES]]


def _results(site: Site, request: Request, view: RunView) -> dict[str, Any]:
    """Return the results that are read at once. The page asks for the rest by itself."""
    del request
    return results_of(site, view, seconds=_RESULTS_SECONDS)


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


def _node_address(site: Site, run: str, node: Node) -> str:
    """Return the link of a node: to its step, or to the list of steps of a family."""
    if len(node.paths) == 1:
        name = site.outputs.name_of(node.paths[0])
        if name is not None:
            return address("step", path=name, run=run)
    pattern = node.label.rpartition(" (")[0] if len(node.paths) > 1 else node.label
    return address("run", run=run, tab="steps", q=pattern)


def _panel_address(site: Site, run: str, path: str) -> str | None:
    name = site.outputs.name_of(path)
    return None if name is None else address("panel", path=name, run=run)


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
        encode_run_events(view.steps),
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
    """Notify the list of runs when a run was added or removed since the page was made (`seen`)."""
    look = _look(site)

    async def stream() -> AsyncIterator[bytes]:
        known = query_text(request, "seen", 400) or list_mark(await anyio.to_thread.run_sync(site.index.runs))
        yield b"retry: 1000\n\n" + encode_event("hello", str(site.pace.alive))
        quiet = 0.0
        while not site.is_stopping:
            now = list_mark(await anyio.to_thread.run_sync(site.index.runs))
            if now != known:
                known, quiet = now, 0.0
                yield encode_event("runs", "")
            elif quiet >= site.pace.alive:
                quiet = 0.0
                yield encode_event("alive", "")
            await asyncio.sleep(look)
            quiet += look

    return event_response(stream())


def list_mark(runs: Sequence[RunFiles]) -> str:
    """Return a text that changes when a run is added to a list, or removed."""
    return f"{len(runs)} {runs[0].id if runs else ''}"
