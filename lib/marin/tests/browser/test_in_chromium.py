"""The experiment pages in a real browser: looks, live states, logs, lost connections, accessibility."""

import asyncio
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marin.browser.command import browser_app
from marin.browser.site import make_site
from rigging.web.login import KEY_BYTES, Viewer
from rigging.web.serving import WebServer, bind
from support.marin.recorded_runs import RecordedStorage, ended, started, step_ended
from support.marin.sample_runs import running_step, sample_root
from support.rigging.chromium import SCHEMES, chromium_path, screenshots, serious_findings, tab_problems, watch

pytest.importorskip("playwright")
from playwright.sync_api import Page, expect

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(chromium_path() is None, reason="chromium is not installed: apt-get install chromium"),
]

TINY = "checkpoints/tiny-aaaaaa"


class Served:
    """The pages of a directory, served; can be stopped and started again at the same port."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.storage = RecordedStorage(root)
        self._key = os.urandom(KEY_BYTES)
        self.start(0)

    def start(self, port: int) -> None:
        bound = bind(port, strict=bool(port))
        self.url, self.port = bound.url, bound.port
        self.site = make_site(str(self.root), f"{self.root}/experiments", "/job?name=")
        self.app = browser_app(self.site, bound, self._key)
        self._server = WebServer(self.app, bound, self.site.stop)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.run()), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.stop()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def sign_in(self, page: Page) -> None:
        page.goto(self.url + self.app.state.web.login_path(Viewer("ada")))
        page.wait_for_url("**/experiments/runs")

    def goto(self, page: Page, place: str) -> None:
        page.goto(f"{self.url}/experiments/{place}")


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("prefix")
    sample_root(root, shards=12)
    served = Served(root)
    yield served
    served.stop()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.stop()


def follow_run(served: Served, page: Page) -> tuple[dict[str, Any], Path]:
    """Look at a run that goes on; returns its running step, and its event log."""
    run, step, log = running_step(served.storage)
    served.sign_in(page)
    served.goto(page, f"run?run={run}")
    expect(page.locator("body")).to_have_attribute("data-connected", "true")
    return step, log


def test_a_visitor_finds_the_way_from_the_list_to_a_file(samples: Served, page: Page) -> None:
    watched = watch(page, samples.url)
    samples.sign_in(page)
    for key, place in (("Tab", ".skip"), ("Enter", "#main"), ("Tab", "#q")):
        page.keyboard.press(key)
        expect(page.locator(place)).to_be_focused()
    page.locator("#q").fill("pretrain-0a")
    expect(page.locator("#runs tbody tr")).to_have_count(1)
    page.locator("#q").fill("")
    expect(page.locator("#runs tbody tr")).to_have_count(3)
    for name in ("pretrain-0a1b2c", "pretrain-3d4e5f"):
        page.get_by_label(f"Compare {name}").check()
    page.get_by_role("button", name="Compare 2 runs").click()
    expect(page.locator("table.compare mark")).to_have_text(["0.003"])
    page.get_by_role("link", name="Train.").first.click()
    expect(page.locator("#graph .node")).to_have_count(5)
    page.locator("#find").fill("shard_0007")
    expect(page.locator("#graph .node.hit")).to_have_count(1)
    page.locator("#grouping").select_option(label="no grouping")
    expect(page.locator("#graph .node")).to_have_count(16)
    page.get_by_role("button", name="Zoom in").click()
    assert float(page.locator("#graph").get_attribute("width") or 0) > 300
    page.locator("#graph a", has_text="checkpoints/tiny").click()
    expect(page.locator("#panel")).to_contain_text("step 299: loss")
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()
    page.get_by_role("link", name="Steps").click()
    page.locator("#q").fill("tiny")
    expect(page.locator("#steps tbody tr")).to_have_count(1)
    page.locator("#steps").get_by_role("link", name="checkpoints/tiny").click()
    expect(page.locator("#log-text")).to_contain_text("step 299: loss")
    page.get_by_role("link", name="samples.parquet").click()
    expect(page.locator("table.data tbody tr")).to_have_count(50)
    assert watched.problems == []


def test_keys_do_what_a_pointer_does(samples: Served, page: Page) -> None:
    samples.sign_in(page)
    for name in ("pretrain-0a1b2c", "pretrain-3d4e5f"):
        page.get_by_label(f"Compare {name}").press("Space")
    page.get_by_role("button", name="Compare 2 runs").press("Space")
    page.get_by_role("link", name="Train.").first.press("Enter")
    node = page.locator("#graph a", has_text="checkpoints/tiny")
    node.press("Enter")
    expect(page.locator("#panel")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Close")).to_be_focused()
    for key in ("Space", "Escape"):
        page.keyboard.press(key)
        expect(page.locator("#panel")).to_be_hidden()
        expect(node).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#panel")).to_be_focused()
    page.get_by_role("link", name="Graph").press("ArrowLeft")
    expect(page.get_by_role("link", name="Config")).to_be_focused()
    for key in ("ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    expect(page.locator("#timeline")).to_be_visible()
    samples.goto(page, f"log?path={TINY}")
    page.get_by_role("button", name="First line").press("Space")
    expect(page.locator('#log div[data-n="1"]')).to_be_in_viewport()
    for key in ("Tab", "Tab", "Enter", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    expect(page.locator("#log .hit")).to_have_attribute("data-n", "2")
    expect(page).to_have_url(f"{samples.url}/experiments/log?path={TINY.replace('/', '%2F')}#L2")
    page.keyboard.press("Escape")
    expect(page.locator("#log")).to_be_focused()


def test_states_change_with_each_event(served: Served, page: Page) -> None:
    watched = watch(page, served.url)
    step, log = follow_run(served, page)
    expect(page.locator("#graph .n-running")).to_have_count(1)
    for number in range(3):
        with log.open("a") as file:
            event = {"event": "step_progressed", "time": 1.0, "name": step["name"], "path": step["output_path"]}
            file.write(json.dumps({**event, "done": number, "total": 8}) + "\n")
        expect(page.locator("body")).to_have_attribute("data-changes", str(number + 1))
    page.evaluate("document.title = 'not loaded again'")
    with log.open("a") as file:
        file.write(json.dumps(step_ended(step, "failed", error="ValueError: no")) + "\n")
    for state in ("failed", "dep_failed"):
        expect(page.locator(f"#graph .n-{state}")).to_have_count(1)
    expect(page.locator(".failure")).to_contain_text("ValueError: no")
    expect(page.locator(".progress .bar")).to_have_attribute("aria-label", "1 failed, 1 dep_failed")
    expect(page).to_have_title("not loaded again")
    with log.open("a") as file:
        file.write(json.dumps(ended(ends={"failed": 1, "dep_failed": 1})) + "\n")
    expect(page.locator("#run-state")).to_contain_text("failed")
    assert watched.problems == []


def test_a_log_is_followed_and_a_new_run_appears(served: Served, page: Page) -> None:
    _, step, _ = running_step(served.storage)
    path = Path(step["output_path"])
    served.sign_in(page)
    expect(page.locator("#runs tbody tr")).to_have_count(1)
    served.storage.run("fresh-123456", [], [started(0), ended()])
    expect(page.locator("#runs tbody tr")).to_have_count(2)
    served.goto(page, "step?path=train/live-111111")
    expect(page.locator("#log-text")).to_have_text("begun\n")
    with (path / ".log").open("a") as file:
        file.write("<b>half</b> way\n5 %\r")
    expect(page.locator("#log-text")).to_contain_text("<b>half</b> way")
    with (path / ".log").open("a") as file:
        file.write("\x1b[32m9 %\rdone\x1b[0m\n")
    (path / ".executor_status").write_text("SUCCESS")
    expect(page.locator("#step-status")).to_have_text("succeeded")
    expect(page.locator("#log-text")).to_have_text("begun\n<b>half</b> way\ndone\n")
    served.goto(page, "log?path=train/live-111111")
    expect(page.locator("#log .ansi-2")).to_have_text("done")
    expect(page.locator("#log .text")).to_have_text(["begun", "<b>half</b> way", "done"])
    served.goto(page, "log?path=train/live-111111#L2")
    expect(page.locator("#log .hit .text")).to_have_text("<b>half</b> way")


def test_a_step_has_a_chart_of_each_metric_that_grows(served: Served, page: Page) -> None:
    step = served.storage.step("train-0a1b2c")
    file = Path(step["output_path"], ".executor_metrics")
    file.write_text("".join(json.dumps({"step": n, "loss": 1 / (n + 1)}) + "\n" for n in range(100)))
    watched = watch(page, served.url)
    served.sign_in(page)
    served.goto(page, "step?path=train-0a1b2c")
    chart = page.locator("#metrics .chart")
    expect(chart).to_have_count(1)
    expect(chart).to_contain_text("loss 0.01")
    expect(chart.locator("canvas")).to_be_visible()
    chart.locator(".u-over").hover()
    expect(chart).to_contain_text(" at ")
    assert watched.problems == []


def test_the_results_of_a_run_are_sorted_and_its_curves_lie_over_each_other(served: Served, page: Page) -> None:
    steps = []
    for number, loss in enumerate((3.0, 1.0, 2.0)):
        step = served.storage.step(f"train{number}-0a1b2c", config={"lr": number})
        rows = ({"step": n, "loss": loss + 9 - n} for n in range(10))
        Path(step["output_path"], ".executor_metrics").write_text("".join(json.dumps(row) + "\n" for row in rows))
        steps.append(step)
    run = served.storage.run("x-0a1b2c", steps, [started(3), *map(step_ended, steps), ended()])
    watched = watch(page, served.url)
    served.sign_in(page)
    served.goto(page, f"run?run={run}&tab=results")
    expect(page.locator("#results tbody tr")).to_have_text(["train003", "train111", "train222"])
    page.locator("#results").get_by_role("button", name="loss").click()
    expect(page.locator("#results tbody tr")).to_have_text(["train111", "train222", "train003"])
    chart = page.locator("#results .chart")
    chart.locator(".u-over").hover()
    expect(chart).to_contain_text("lr=")
    drawn = page.locator("#results .charts")
    expect(drawn).to_have_attribute("data-drawn", "1")
    chart.press("+")
    expect(drawn).to_have_attribute("data-drawn", "2")
    page.locator("#log-scale").check()
    assert serious_findings(page) == []
    assert watched.problems == []


def test_a_page_says_that_the_server_is_gone_and_recovers_when_it_is_back(served: Served, page: Page) -> None:
    step, log = follow_run(served, page)
    began = time.monotonic()
    served.stop()
    assert time.monotonic() - began < 20, "it does not wait for the pages that look on"
    expect(page.locator("#connection")).to_contain_text("Connection lost")
    with log.open("a") as file:
        file.write(json.dumps(step_ended(step)) + "\n")
    served.start(served.port)
    # The session outlived the server, and what happened meanwhile is told.
    expect(page.locator("#graph .n-succeeded")).to_have_count(1)
    expect(page.locator("#connection")).not_to_contain_text("lost")
    page.context.clear_cookies()
    served.stop()
    served.start(served.port)
    expect(page.locator("#connection")).to_contain_text("Signed out")
    page.reload()
    expect(page.locator("h1")).to_have_text("Sign in")


PAGES = {
    "runs": "runs",
    "run": "run?run=pretrain-0a1b2c",
    "run-timeline": "run?run=pretrain-0a1b2c&tab=timeline",
    "run-steps": "run?run=evaluate-777777&tab=steps",
    "run-results": "run?run=pretrain-0a1b2c&tab=results",
    "run-config": "run?run=pretrain-0a1b2c&tab=config",
    "run-failed": "run?run=evaluate-777777",
    "run-going": "run?run=pretrain-3d4e5f&group=none",
    "step": f"step?path={TINY}&run=pretrain-0a1b2c",
    "step-failed": "step?path=eval/toxicity-badbad&run=evaluate-777777",
    "log": f"log?path={TINY}",
    "log-found": f"log?path={TINY}&find=loss",
    "files": f"files?path={TINY}",
    "file-text": f"files?path={TINY}/notes.txt",
    "file-jsonl": f"files?path={TINY}/samples.jsonl.gz",
    "file-parquet": f"files?path={TINY}/samples.parquet",
    "file-npy": f"files?path={TINY}/weights.npy",
    "file-image": f"files?path={TINY}/curve.svg",
    "file-bytes": f"files?path={TINY}/weights.bin",
    "prefix": "files",
    "compare-which": "compare",
    "compare": "compare?before=pretrain-0a1b2c&after=pretrain-3d4e5f",
}


def test_pages_are_accessible_fit_a_phone_and_load_without_errors(samples: Served, page: Page) -> None:
    watched = watch(page, samples.url)
    samples.sign_in(page)
    for name, place in PAGES.items():
        samples.goto(page, place)
        assert tab_problems(page) == [], name
        screenshots(page, f"marin-{name}")
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            assert serious_findings(page) == [], f"{name}, {scheme}"
        page.set_viewport_size({"width": 390, "height": 800})
        # Tables and graphs scroll by themselves; the page does not.
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, name
        page.set_viewport_size({"width": 1280, "height": 900})
    assert watched.problems == []
    for name, place in (("missing", "files?path=nothing/here"), ("login", "runs")):
        samples.goto(page, place)
        screenshots(page, f"marin-{name}")
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            assert serious_findings(page) == [], f"{name}, {scheme}"
        page.context.clear_cookies()
