"""The cluster's pages in a real browser: navigation, live changes, logs, stopping, lost connections, accessibility."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

import pytest

from iris.dashboard.cluster_client import viewer_of
from iris.rpc.generated import iris_pb2 as pb
from support.iris.controller import RunningController, running_controller
from support.iris.users import User
from support.iris.worker import ScriptedWorker
from support.rigging.chromium import SCHEMES, chromium_path, screenshots, serious_findings, tab_problems, watch

from .task_server import task_server
from .test_task_pages import HTTP, Register, Site, register, site  # noqa: F401  # fixtures

pytest.importorskip("playwright")
from playwright.sync_api import Page, expect

from .served import Served, T, connected, write_log

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(chromium_path() is None, reason="chromium is not installed: apt-get install chromium"),
]


@pytest.fixture
def served(controller: RunningController) -> Iterator[Served]:
    served = Served(controller)
    yield served
    served.stop()


def test_a_visitor_finds_the_way_from_the_list_to_a_log_and_stops_a_job_who_may(
    served: Served, page: Page, admin: User, worker: ScriptedWorker
) -> None:
    for name in ("/ann/train", "/ann/train/child", "/bob/other"):
        admin.submit(name)
    worker.wait_for_start("/ann/train/0:0")
    write_log(worker, "/ann/train/0:0", 0, "loss 3.5", "<b>loss</b> 3.4")
    watched = watch(page, served.url)
    served.sign_in(page)
    page.get_by_role("link", name="Jobs", exact=True).click()
    expect(page.locator("#jobs tbody tr")).to_have_count(2)
    unfold = page.get_by_role("button", name="child jobs of /ann/train")
    unfold.click()
    expect(page.locator("#jobs tbody tr")).to_have_count(3)
    unfold.click()
    expect(page.locator("#jobs tbody tr")).to_have_count(2)
    page.locator("#q").fill("other")
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    page.locator("#q").fill("train")
    expect(page.locator("#jobs tbody tr")).to_have_count(2)
    page.get_by_role("link", name="/ann/train", exact=True).click()
    expect(page.locator("h1")).to_contain_text("/ann/train")
    expect(page.locator("#tasks tbody tr")).to_have_count(1)
    page.get_by_role("link", name="Log", exact=True).first.click()
    expect(page.locator("#log .text")).to_have_text(["loss 3.5", "<b>loss</b> 3.4"])
    served.goto(page, "job?id=/bob/other")
    expect(page.get_by_role("button", name="Stop job")).to_have_count(0)
    served.sign_in(page, may_write=True)
    served.goto(page, "job?id=/bob/other")
    answers: list[str] = []
    page.on("dialog", lambda dialog: (answers.append(dialog.message), dialog.accept()))
    page.get_by_role("button", name="Stop job").click()
    expect(page.locator("#job .status").first).to_have_text("killed")
    assert answers == ["Stop /bob/other and its child jobs?"]
    assert watched.problems == []


def test_changes_are_shown_at_once_and_the_end(served: Served, page: Page, admin: User, worker: ScriptedWorker) -> None:
    admin.submit("/ann/a")
    worker.wait_for_start("/ann/a/0:0")
    watched = watch(page, served.url)
    served.sign_in(page)
    served.goto(page, "jobs")
    connected(page)
    admin.submit("/ann/new")
    expect(page.locator("#jobs tr[data-job]")).to_have_count(2)
    served.goto(page, "job?id=/ann/a")
    connected(page)
    worker.observe("/ann/a/0:0", pb.TASK_STATE_RUNNING)
    expect(page.locator("#job .status").first).to_have_text("running")
    worker.observe("/ann/a/0:0", pb.TASK_STATE_FAILED, exit_code=3, error="out of luck")
    expect(page.locator("#job")).to_contain_text("out of luck")
    assert watched.problems == []
    page.context.clear_cookies()
    served.stop()
    expect(page.locator("#connection")).to_contain_text("Connection lost")
    served.start(served.port)
    expect(page.locator("#connection")).to_contain_text("Signed out")


def test_the_usage_of_a_short_job_fills_its_chart_with_times_in_iso_form(
    served: Served, page: Page, admin: User, worker: ScriptedWorker
) -> None:
    admin.submit("/ann/a")
    worker.wait_for_start("/ann/a/0:0")
    worker.observe("/ann/a/0:0", pb.TASK_STATE_RUNNING, started_at_ms=T, at_ms=T)
    for second in range(5, 41, 5):
        use = pb.AttemptUsage(attempt_id="/ann/a/0:0", cpu_ms=100 * second, memory_bytes=2**21, at_ms=T + 1000 * second)
        worker.send(pb.WorkerMessage(usage=[use]))
    worker.observe("/ann/a/0:0", pb.TASK_STATE_SUCCEEDED, at_ms=T + 40_000, usage=use)
    admin.wait("/ann/a")
    served.sign_in(page)
    for place in ("job?id=/ann/a", "task?id=/ann/a/0"):
        served.goto(page, place)
        plot = page.locator(".chart .u-over").first
        width = plot.evaluate("plot => plot.clientWidth")
        for share in (0.01, 0.5, 0.99):
            plot.hover(position={"x": share * width, "y": 50})
            at = datetime.fromtimestamp(T / 1000 + 40 * round(share, 1))
            expect(page.locator(".chart figcaption .note").first).to_contain_text(f"at {at:%Y-%m-%d %H:%M:%S}")


def test_live_changes_leave_alone_what_a_reader_does(
    served: Served, page: Page, admin: User, worker: ScriptedWorker
) -> None:
    for name in ("/ann/a", "/ann/a/b", "/ann/a/b/c"):
        admin.submit(name)
    served.sign_in(page)
    served.goto(page, "jobs")
    connected(page)
    for name in ("/ann/a", "/ann/a/b"):
        page.get_by_role("button", name=f"child jobs of {name}", exact=False).first.press("Enter")
        expect(page.locator(f'[id="job-{name}"] .unfold')).to_have_attribute("aria-expanded", "true")
    page.get_by_role("link", name="/ann/a/b/c", exact=True).focus()
    page.evaluate("getSelection().selectAllChildren(document.querySelector('thead'))")
    selected = page.evaluate("String(getSelection())")
    admin.submit("/ann/a/new")
    admin.submit("/ann/other")
    rows = [f"/ann/{name}" for name in ("other", "a", "a/new", "a/b", "a/b/c")]
    expect(page.locator("#jobs tr[data-job] td:first-child > a")).to_have_text(rows)
    assert page.evaluate("document.activeElement.textContent") == "/ann/a/b/c"
    assert page.evaluate("String(getSelection())") == selected != ""
    served.goto(page, "job?id=/ann/a")
    connected(page)
    page.locator("#job .tabs a").last.focus()
    worker.wait_for_start("/ann/a/0:0")
    worker.observe("/ann/a/0:0", pb.TASK_STATE_RUNNING)
    expect(page.locator("#job .status").first).to_have_text("running")
    assert page.evaluate("document.activeElement.textContent") == "Log with children"


@pytest.mark.parametrize("shares", [True, False], ids=["shared worker", "polls"])
def test_twenty_visible_tabs_follow_running_jobs_and_their_logs(
    served: Served, page: Page, admin: User, worker: ScriptedWorker, shares: bool
) -> None:
    admin.submit("/ann/a")
    worker.wait_for_start("/ann/a/0:0")
    end = write_log(worker, "/ann/a/0:0", 0, "first")
    if not shares:
        page.context.add_init_script("delete window.SharedWorker")
    served.sign_in(page)
    jobs = [page, *(page.context.new_page() for _ in range(9))]
    logs = [page.context.new_page() for _ in range(10)]
    for log, job in zip(logs, jobs, strict=True):
        served.goto(log, "logs?id=/ann/a")
        expect(log.locator("#log")).to_have_attribute("data-connected", "true")
        served.goto(job, "job?id=/ann/a")
        connected(job)
    for line in ("second", "third"):
        end = write_log(worker, "/ann/a/0:0", end, line)
        expect(logs[0].locator("#log .text").last).to_have_text(line)
    worker.observe("/ann/a/0:0", pb.TASK_STATE_SUCCEEDED, log_size=end)
    for log, job in zip(logs, jobs, strict=True):
        expect(log.locator("#log-state")).to_have_text("The log is complete.")
        expect(log.locator("#log .text")).to_have_text(["first", "second", "third"])
        expect(job.locator("#job .status").first).to_have_text("succeeded")


def test_pages_say_that_the_controller_is_away_and_go_on_when_it_is_back(tmp_path: Path, page: Page) -> None:
    with running_controller(tmp_path / "state") as first:
        served = Served(first)
        served.sign_in(page)
        connected(page)
        address = first.address
        first.stop()
        expect(page.locator("#connection")).to_contain_text("The controller is away")
    with running_controller(tmp_path / "state", port=address.port) as second:
        expect(page.locator("#connection")).not_to_contain_text("away")
        with ScriptedWorker(second.address, second.worker_token("w1")):
            served.goto(page, "workers")
            expect(page.locator("#workers tbody")).to_contain_text("w1")
    served.stop()


def test_pages_are_accessible_and_fit_a_phone(served: Served, page: Page, admin: User, worker: ScriptedWorker) -> None:
    admin.submit("/ann/failed")
    worker.wait_for_start("/ann/failed/0:0")
    worker.observe("/ann/failed/0:0", pb.TASK_STATE_FAILED, exit_code=3, error="out of luck")
    admin.submit("/ann/gang", replicas=2, description="two hosts")
    admin.submit("/ann/gang/child")
    began = int(time.time() * 1000) - 900_000
    for index in range(2):
        worker.wait_for_start(f"/ann/gang/{index}:0")
        worker.observe(f"/ann/gang/{index}:0", pb.TASK_STATE_RUNNING, started_at_ms=began)
    for second in range(0, 900, 5):
        memory = 2**28 + 2**20 * (second % 70) + 2**29 * (second == 700)
        use = pb.AttemptUsage(
            attempt_id="/ann/gang/0:0", cpu_ms=700 * second, cpu_millis=500 + 9 * (second % 70),
            memory_bytes=memory, at_ms=began + 1000 * second,
        )  # fmt: skip
        worker.send(pb.WorkerMessage(usage=[use]))
    write_log(worker, "/ann/gang/0:0", 0, *(f"step {i}: loss {3 - i / 50:.2f}" for i in range(60)))
    admin.submit("/ann/waits", replicas=3)
    watched = watch(page, served.url)
    served.sign_in(page, may_write=True)
    sql = quote("SELECT job_id, state_word, replicas FROM jobs")
    pages = {
        "overview": "cluster", "jobs": "jobs",
        "job": "job?id=/ann/gang", "task": "task?id=/ann/gang/0", "logs": "logs?id=/ann/gang",
        "queue": "queue", "workers": "workers", "worker": "worker?id=w1", "users": "users", "endpoints": "endpoints",
        "job-ended": "job?id=/ann/failed", "children": "logs?id=/ann/gang&children=1", "below": "jobs?parent=/ann/gang",
        "controller": "controller", "sql": f"sql?q={sql}",
    }  # fmt: skip
    for name, place in pages.items():
        served.goto(page, place)
        if name == "job":
            expect(page.locator("#tasks tbody tr")).to_have_count(2)
        if name == "task":
            expect(page.locator(".chart canvas")).to_have_count(2)
        expect(page.locator(".htmx-request")).to_have_count(0)  # which are faint
        assert tab_problems(page) == [], name
        screenshots(page, f"iris-{name}")
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            expect(page.locator(".htmx-request")).to_have_count(0)
            assert serious_findings(page) == [], f"{name}, {scheme}"
        page.set_viewport_size({"width": 390, "height": 800})
        # Tables and logs scroll by themselves; the page does not.
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, name
        assert page.evaluate("document.querySelector('header.top').offsetHeight") < 60, "one line"
        page.set_viewport_size({"width": 1280, "height": 900})
    assert watched.problems == []


# What a page of a task tries; each says "refused" or what it got.
HOSTILE = """async (home) => {
  const tried = async (what) => { try { return await what(); } catch (error) { return "refused"; } };
  const found = {};
  found.fetch = await tried(async () => (await fetch(home + "/jobs", {credentials: "include"})).text());
  const blindly = {credentials: "include", mode: "no-cors"};
  found.blind = await tried(async () => (await fetch(home + "/jobs", blindly)).text());
  found.post = await tried(async () => (await fetch(home + "/job/stop", {method: "POST", credentials: "include",
    body: new URLSearchParams({id: "/ann/a"})})).text());
  found.events = await new Promise((done) => {
    const source = new EventSource(home + "/events", {withCredentials: true});
    source.onmessage = source.onopen = () => done("open");
    source.onerror = () => { source.close(); done("refused"); };
  });
  found.socket = await new Promise((done) => {
    const socket = new WebSocket(home.replace("http", "ws") + "/events");
    socket.onopen = () => done("open");
    socket.onerror = () => done("refused");
  });
  found.cookie = document.cookie;
  return found;
}"""


def test_a_page_of_a_task_works_outlives_its_server_and_cannot_reach_the_dashboard(
    site: Site,  # noqa: F811
    register: Register,  # noqa: F811
    admin: User,
    page: Page,
) -> None:
    page.goto(site.home + site.app.state.web.login_path(viewer_of("ann", is_admin=False, may_write=True)))
    page.wait_for_url("**/cluster")
    with task_server() as port:
        register("board", f"127.0.0.1:{port}", HTTP)
        page.goto(f"{site.home}/proxy/ann/a/board")
        assert page.url == f"{site.tasks}/proxy/ann/a/board/"
        expect(page.locator("#fetched")).to_have_text("/data?x=1")
        expect(page.locator("#echo")).to_have_text("hello ")
        found = page.evaluate(HOSTILE, site.home)
        assert found == {
            "fetch": "refused", "blind": "refused", "post": "refused", "events": "refused", "socket": "refused",
            "cookie": "",
        }  # fmt: skip
        page.evaluate(
            "home => { document.body.innerHTML = `<form method=post action='${home}/job/stop'>"
            "<input name=id value='/ann/a'></form>`; document.forms[0].submit(); }",
            site.home,
        )
        page.wait_for_url("**/job/stop")
        expect(page.locator("body")).to_contain_text("refused: origin")
        assert admin.get("/ann/a").state != pb.JOB_STATE_KILLED
        page.goto(f"{site.tasks}/proxy/ann/a/board/")
        # Counted in the same turn: requests of the page itself, too, are answered with deletions.
        written = page.evaluate(
            "() => { for (let i = 0; i < 40; i++) document.cookie = `c${i}=${'x'.repeat(4000)}; path=/`;"
            " return document.cookie.split(';').length; }"
        )
        assert written > 30, "as many as lock a viewer out"
        for _ in range(4):  # each answer deletes some
            page.goto(f"{site.home}/jobs")
            expect(page.locator("h1")).to_have_text("Jobs")
        assert len(page.context.cookies()) < 12
        page.goto(f"{site.tasks}/proxy/ann/a/board/")
    page.reload()
    expect(page.locator("body")).to_contain_text("does not answer")
    with task_server(port):
        expect(page.locator("#echo")).to_have_text("hello ")  # the page came back by itself
