"""The experiment pages as a page set for any application: the entry point `rigging.web.pages: marin`."""

from __future__ import annotations

import functools
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from marin.browser.handlers import compare, files, logs, metrics, peek, run, runs, step
from marin.browser.site import BASE, Site, address, make_site
from marin.recorded.deciding.run_names import RunFiles
from marin.recorded.reading.places import runs_directory, storage_root
from rigging.errors import MarinError
from rigging.web.pages import NavItem, PageSet

_log = logging.getLogger(__name__)
_WARM_BATCH: Final = 100
_WARM_PAUSE_SECONDS: Final = 0.02
# The first page is asked for in these, by the browser that the printed link opens.
_WARM_DELAY_SECONDS: Final = 2.0


def page_set(options: Mapping[str, str]) -> PageSet:
    """Return the experiment pages.

    Args:
        options: `prefix`: the storage root (default: MARIN_PREFIX); `runs`: the directory of run records (default:
            `PREFIX/experiments`); `jobs_url`: the URL of job pages up to a job's name, such as `/job?name=`.
    """
    root = storage_root(options.get("prefix") or None)
    site = make_site(root, runs_directory(root, options.get("runs") or None), options.get("jobs_url", ""))
    return pages_of(site)


def pages_of(site: Site) -> PageSet:
    """Return the experiment pages of a site."""

    def page(path: str, handler: Callable[[Site, Request], Any]) -> Route:
        return Route(f"{BASE}/{path}", functools.partial(handler, site))

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        # The first search would wait for the summaries of all runs.
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_warm_up, site)
            yield
            site.stop()
            tasks.cancel_scope.cancel()

    async def first(request: Request) -> Response:
        del request
        return RedirectResponse(address("runs"), 307)

    return PageSet(
        "marin",
        [
            Route(BASE, first),
            Route("/experiment", functools.partial(runs.from_info_file, site)),
            page("runs", runs.runs_page),
            page("runs/events", run.list_events),
            page("compare", compare.compare_page),
            page("run", run.run_page),
            page("run/events", run.run_events),
            page("step", step.step_page),
            page("panel", peek.panel),
            page("metrics", metrics.metrics),
            page("curves", metrics.curves),
            page("run/results", metrics.results),
            page("log", logs.log_page),
            page("log/events", logs.log_events),
            page("log/lines", logs.log_lines),
            page("files", files.files_page),
            page("raw", files.raw_file),
        ],
        package="marin.browser",
        nav=(
            NavItem("Runs", f"{BASE}/runs", group="Experiments"),
            NavItem("Compare", f"{BASE}/compare", group="Experiments"),
            NavItem("Files", f"{BASE}/files", group="Experiments"),
        ),
        lifespan=lifespan,
    )


async def _warm_up(site: Site) -> None:
    """Read the summaries of all runs. Never raise, because an error would end the whole application."""
    try:
        await _read_summaries(site)
    except (OSError, MarinError) as error:
        _log.warning("the runs below %s cannot be listed now: %s", site.outputs.root, error)
    except Exception:
        _log.exception("the runs below %s could not be read in advance", site.outputs.root)


async def _read_summaries(site: Site) -> None:
    """Read the summaries slowly, so that pages and the controller keep priority."""
    runs_found = await anyio.to_thread.run_sync(site.index.runs, abandon_on_cancel=True)
    await anyio.sleep(_WARM_DELAY_SECONDS)
    for start in range(0, len(runs_found), _WARM_BATCH):
        batch = runs_found[start : start + _WARM_BATCH]
        await anyio.to_thread.run_sync(_read_batch, site, batch, abandon_on_cancel=True)
        await anyio.sleep(_WARM_PAUSE_SECONDS)


def _read_batch(site: Site, runs: Sequence[RunFiles]) -> None:
    summaries = site.index.summaries(runs)
    if site.outputs.is_local:  # in a bucket, only what somebody asks for is read
        site.facts.read(summaries)
