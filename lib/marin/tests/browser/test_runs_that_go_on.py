"""Runs that go on, begin, or were killed, as the pages show them."""

import asyncio
import datetime
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from starlette.requests import Request

from marin.browser.handlers.run import list_events, run_events
from marin.browser.site import make_site
from marin.cli.commands.browser import browser
from marin.recorded.deciding.dag import STATUSES
from rigging.errors import InvalidRequest
from support.marin.recorded_runs import STARTED, Events, ended, started, step_ended

from .conftest import Pages, pages_of_root

_GONE = 2**22 + 1  # larger than any process id


def _began(step: dict[str, Any]) -> dict[str, Any]:
    return {"event": "step_started", "time": STARTED, "name": step["name"], "path": step["output_path"]}


def _here(steps: int) -> dict[str, Any]:
    return started(steps, host=os.uname().nodename)


def _record(pages: Pages, events: Events, step: dict[str, Any], pid: int) -> str:
    return pages.storage.run("run-222222", [step], events, pid=pid)


def test_a_step_that_died_is_what_its_family_of_the_graph_is_like(empty: Pages) -> None:
    steps = [empty.storage.step(f"shard_{number}-111111") for number in range(8)]
    events = [_here(8), *map(step_ended, steps[1:]), _began(steps[0])]
    run = empty.storage.run("run-222222", steps, events, pid=_GONE)
    assert 'class="node n-died family"' in empty.get("run", run=run)
    script = empty.client.get("/static/marin/experiments.js").text
    assert [word for word in STATUSES if f'"{word}"' not in script] == []


@pytest.mark.parametrize(("head", "words"), [(started(4), ["failed", "dep_failed", "dep_failed", "queued"]),
                                            (_here(4), ["failed", "none", "none", "none"])])  # fmt: skip
def test_no_step_waits_whose_input_failed_or_whose_run_is_over(
    empty: Pages, head: dict[str, Any], words: list[str]
) -> None:
    steps: list[dict[str, Any]] = []
    for name in ("a-111111", "b-222222", "c-333333"):
        steps.append(empty.storage.step(name, status=None, dependencies=[each["output_path"] for each in steps[-1:]]))
    steps.append(empty.storage.step("d-444444", status=None))
    queued = [{**_began(step), "event": "step_queued"} for step in steps]
    run = empty.storage.run("run-222222", steps, [head, *queued, step_ended(steps[0], "failed")], pid=_GONE)
    assert re.findall(r'step-status"><span class="status s-(\w+)', empty.get("run", run=run, tab="steps")) == words


def test_what_runs_says_for_how_long_so_far(empty: Pages) -> None:
    step = empty.storage.step("slow-111111", status="RUNNING")
    empty.storage.run("run-222222", [step])
    now = datetime.datetime.now(datetime.UTC)
    run = f"run-222222-{now:%Y%m%dT%H%M%S.%f}Z-{os.getpid()}"
    began = {**_began(step), "time": now.timestamp() - 125}
    lines = "".join(json.dumps(event) + "\n" for event in (_here(1), began))
    (empty.root / "experiments" / f"{run}.events.jsonl").write_text(lines)
    page = empty.get("run", run=run, tab="steps")
    assert 'class="status s-running"' in page
    assert re.search(r'step-seconds"><span data-since="[0-9.]+" data-now="[0-9.]+">2 min [0-9]+ s</span> so far', page)
    assert "so far" in empty.get("runs")
    assert "so far" in empty.get("step", path="slow-111111", run=run)


def test_the_page_of_a_run_without_a_log_of_events_waits_for_one(empty: Pages) -> None:
    step = empty.storage.step("slow-111111", status="RUNNING")
    run = empty.storage.run("run-222222", [step])
    page = empty.get("run", run=run)
    assert "/experiments/run/events?run=run-222222" in page
    old = time.time() - 3600
    os.utime(empty.root / "experiments" / "run-222222.json", (old, old))
    assert "data-events" not in empty.get("run", run=run)


def test_a_log_of_events_that_comes_makes_the_page_load_itself_again(empty: Pages) -> None:
    step = empty.storage.step("slow-111111")
    empty.storage.run("run-222222", [step])
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b"run=run-222222"}

    async def scenario() -> str:
        told = ""
        stream = (await run_events(empty.site, Request(scope))).body_iterator  # type: ignore[attr-defined]
        async with asyncio.timeout(30):
            async for piece in stream:
                told += piece.decode()
                if "hello" in told and "grown" not in told:
                    empty.storage.run("run-222222", [step], [started(1), ended()])
        return told

    assert asyncio.run(scenario()).endswith("event: run\ndata: grown\n\n")


@pytest.mark.parametrize("spelling", ["link", "real/../real", "real/."])
def test_paths_below_the_prefix_are_links_however_it_is_spelled(tmp_path: Path, spelling: str) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    storage = pages_of_root(real).storage
    run = storage.run("run-222222", [storage.step("one-111111")], [started(1), ended()])
    root = f"{tmp_path}/{spelling}"
    site = make_site(root, f"{root}/experiments")
    assert site.outputs.name_of(f"{real}/one-111111") == "one-111111"
    assert site.outputs.name_of(f"{tmp_path}/other/one-111111") is None
    assert site.index.find(run).id == run


@pytest.mark.parametrize("words", [["--prefix", "memory://x"], ["--jobs-url", "javascript:alert(1)"]])
def test_prefixes_and_urls_that_cannot_be_served_are_refused(words: list[str]) -> None:
    with pytest.raises(InvalidRequest, match=r"must begin with http|visible only to the process"):
        CliRunner().invoke(browser, words, catch_exceptions=False, obj=None)


def test_steps_of_a_run_that_was_killed_do_not_run_unless_another_run_is_at_them(empty: Pages) -> None:
    step = empty.storage.step("slow-111111", status="RUNNING")
    run = _record(empty, [_here(1), _began(step)], step, _GONE)
    for page in (empty.get("run", run=run), empty.get("step", path="slow-111111", run=run)):
        assert 'class="status s-died"' in page
        assert "s-running" not in page
        assert "data-events" not in page
    (empty.root / "slow-111111" / ".executor_status.lock").write_text("{}")
    page = empty.get("step", path="slow-111111", run=run)
    assert 'class="status s-running"' in page
    assert "data-events" in page


def test_a_run_that_does_not_tell_its_end_says_when_it_was_seen_last_and_what_it_did_not_start(empty: Pages) -> None:
    steps = [empty.storage.step(f"{name}-111111", status=None) for name in ("data", "slow", "late")]
    seen = {**_began(steps[1]), "time": time.time() - 3 * 3600 - 60}
    events = [step_ended(steps[0]), seen]
    empty.storage.run("elsewhere-333333", steps, [started(3), *events])
    run = empty.storage.run("run-222222", steps, [_here(3), *events], pid=_GONE)
    listed = re.sub(r"<[^>]+>", " ", empty.get("runs"))
    for state in ("died", "unfinished"):
        assert re.search(rf"{state}\s+last seen\s+3 h ago", listed), listed
    assert 'aria-label="1 succeeded, 2 unfinished"' in empty.get("runs")
    page = re.sub(r"<[^>]+>", " ", empty.get("run", run=run))
    assert re.search(r"last seen\s+3 h ago", page)
    assert ("1 died" in page, "1 not started" in page, "unknown" in page) == (True, True, False)
    assert "1 not recorded" in empty.get("run", run=empty.storage.run("old-444444", steps[:1]))


def test_a_run_that_came_before_its_page_listened_is_told(empty: Pages) -> None:
    (address,) = re.findall(r'data-events="[^"?]*\?([^"]*)"', empty.get("runs"))
    empty.storage.run("run-222222", [], [started(0), ended()])
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": address.encode()}

    async def first() -> str:
        stream = (await list_events(empty.site, Request(scope))).body_iterator  # type: ignore[attr-defined]
        async with asyncio.timeout(30):
            async for piece in stream:
                if "hello" not in piece.decode():
                    return str(piece.decode())
        return ""

    assert asyncio.run(first()).startswith("event: runs")
    assert "run-222222" in empty.get("runs")
