"""The page of a step's output: facts, config, version, attempts, log, files."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from marin.browser.confined import Confined
from marin.browser.handlers.logs import log_part, status_word, text_of
from marin.browser.listing import Listing
from marin.browser.run_view import RunView
from marin.browser.site import Site, address, asked_path, job_address
from marin.output_files import ERROR_FILE, INFO_FILE, LOCK_FILE, LOG_FILE, METRICS_FILE, STATUS_FILE
from marin.recorded.deciding.run_steps import RunStep
from marin.recorded.deciding.step_names import digits_of
from marin.recorded.reading.metrics import links_in
from rigging.errors import MarinError, NotFound
from rigging.web.context import render
from rigging.web.pages import query_text

_MOST_INFO_BYTES = 64 << 20
_MOST_ERROR_BYTES = 256 << 10
_MOST_CONFIG = 200_000
_HEAD_BYTES = 32 << 10
_RUNNING = "RUNNING"
# The words of status files, as the pages of runs have them.
_RUNS_WORDS = {"SUCCESS": "succeeded", "FAILED": "failed", "RUNNING": "running", "DEP_FAILED": "dep_failed"}
# How a step that ran stands when its run is over; another run may be at it since.
_ENDED_WITH_RUN = ("died", "stopped")
_GOES_ON = ("running", "retrying", "queued")
# A lease is renewed every 30 s, and lost after 90.
_LEASE_SECONDS = 90.0


def step_page(site: Site, request: Request) -> Response:
    """Show a step's output."""
    name = asked_path(request)
    path = site.outputs.path(name)
    word = query_text(request, "run", 300)
    view = site.run(word)[1] if word else None
    step = None if view is None else view.step(path)
    entries = Listing((), lambda *_: None)
    try:
        entries = site.outputs.entries(name)
    except NotFound:
        if step is None:
            raise
    info, damage = read_object(site.outputs, f"{name}/{INFO_FILE}")
    status = text_of(site.outputs, f"{name}/{STATUS_FILE}", 4096)
    log = log_part(site.outputs, f"{name}/{LOG_FILE}", None)
    shown = status_word(status) or (step.status if step else None)
    if step is not None and shown == _RUNNING and step.status in _ENDED_WITH_RUN and not _is_held(site.outputs, name):
        shown = step.status  # nobody was left to write it
    recorded = info or _recorded(site, view, path)
    return render(
        request,
        "marin/step.html",
        name=name,
        path=path,
        run=view.files if view else None,
        step=step,
        status=_RUNS_WORDS.get(shown or "", shown),
        now=time.time(),
        info=recorded,
        damage=damage,
        holder=_holder(site.outputs, name) if LOCK_FILE in entries else None,
        config=_json(recorded.get("config")),
        version=_json(_own_version(recorded.get("version"))),
        unversioned=_json(recorded.get("unversioned") or None),
        source=_pairs(recorded.get("source")),
        digits=digits_of(path.rpartition("/")[2]),
        dependencies=_dependencies(site, view, recorded),
        attempts=_attempts(step, recorded),
        job=job_address(site.jobs_url, step.log if step else None),
        log=log,
        links=links_in((text_of(site.outputs, f"{name}/{METRICS_FILE}", _HEAD_BYTES) or "").encode()),
        error=text_of(site.outputs, f"{name}/{ERROR_FILE}", _MOST_ERROR_BYTES) or (step.error if step else None),
        # A page whose log is over reloads: it must not be live then.
        is_live=shown == _RUNNING or (status_word(status) is None and step is not None and step.status in _GOES_ON),
        files=entries.part(0, 50),
        file_count=len(entries),
        address=address,
    )


def _recorded(site: Site, view: RunView | None, path: str) -> Mapping[str, Any]:
    """Return a step's entry in a run's info file, for outputs without an info file."""
    steps: Sequence[Any] = () if view is None or view.problem else site.views.info(view.files)["steps"]
    return next((step for step in steps if isinstance(step, dict) and step.get("output_path") == path), {})


def read_object(place: Confined, name: str) -> tuple[Mapping[str, Any], str | None]:
    """Return the JSON object in a file, and its problem or None; ({}, None) if the file does not exist."""
    try:
        content = place.read(name, 0, _MOST_INFO_BYTES)
    except NotFound:
        return {}, None
    except MarinError as error:
        return {}, str(error)
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        return {}, f"{name} is damaged: {error}"
    return (value, None) if isinstance(value, dict) else ({}, f"{name} is damaged: it is not a JSON object")


def _holder(place: Confined, name: str) -> str | None:
    from rigging.lease.record import StoredLease, holder_of

    content = text_of(place, f"{name}/{LOCK_FILE}", 1 << 16)
    return None if content is None else holder_of(StoredLease(content.encode(), ""))


def _is_held(place: Confined, name: str) -> bool:
    """Return False if the holder of an output's lease has ended, or has stopped renewing the lease."""
    from rigging.lease.identity import HolderState, holder_state
    from rigging.lease.record import Lease

    try:
        content = place.read(f"{name}/{LOCK_FILE}", 0, 1 << 16)
        modified = place.entry(f"{name}/{LOCK_FILE}").modified
    except MarinError:
        return False
    lease = Lease.from_bytes(content)
    if lease is not None and holder_state(lease.worker_id) is HolderState.GONE:
        return False
    return modified is not None and time.time() - modified < _LEASE_SECONDS


def _json(value: Any) -> str | None:
    if value is None:
        return None
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return "(nested too deeply to show)"
    return text if len(text) <= _MOST_CONFIG else f"{text[:_MOST_CONFIG]}\n… {len(text) - _MOST_CONFIG} characters more"


def _own_version(version: Any) -> Any:
    """Return the step's own versioned values, and the names of its dependencies."""
    if not isinstance(version, dict):
        return version
    waits = version.get("dependencies")
    names = (
        [item.get("name", "?") if isinstance(item, dict) else item for item in waits] if isinstance(waits, list) else []
    )
    return {**version, "dependencies": names}


def _pairs(value: Any) -> list[tuple[str, str]]:
    return [(str(key), str(item)) for key, item in value.items()] if isinstance(value, dict) else []


def _dependencies(
    site: Site, view: RunView | None, info: Mapping[str, Any]
) -> list[tuple[str, str | None, str | None]]:
    """Return the path, the status in the run and the link of each dependency."""
    paths = info.get("dependencies")
    found = []
    for path in paths if isinstance(paths, list) else ():
        step: RunStep | None = view.step(str(path)) if view else None
        name = site.outputs.name_of(str(path))
        link = None if name is None else address("step", path=name, run=view.files.id if view else None)
        found.append((str(path), step.status if step else None, link))
    return found


def _attempts(step: RunStep | None, info: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    told = list(step.attempts) if step else []
    if not told:
        recorded = info.get("attempts")
        told = [item for item in recorded if isinstance(item, dict)] if isinstance(recorded, list) else []
    return [{name: _attempt_value(name, item.get(name)) for name in _ATTEMPT} for item in told]


_ATTEMPT = ("outcome", "seconds", "queued_seconds", "cpu_seconds", "peak_bytes", "error")


def _attempt_value(name: str, value: Any) -> Any:
    if name in ("outcome", "error"):
        return None if value is None else str(value)
    return value if type(value) in (int, float) else None
