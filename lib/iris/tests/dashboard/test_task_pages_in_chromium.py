"""A task's page in a real browser: it works behind the login, and cannot reach the dashboard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from iris.dashboard.cluster_client import viewer_of
from iris.rpc import iris_pb2 as pb
from iris.testing.users import User
from rigging.testing.chromium import chromium, chromium_path

from .task_server import task_server
from .test_task_pages import HTTP, Register, Site, register, site  # noqa: F401  # fixtures

pytest.importorskip("playwright")
from playwright.sync_api import Page, expect

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(chromium_path() is None, reason="chromium is not installed: apt-get install chromium"),
]

#: What a page of a task tries; each says "refused" or what it got.
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


@pytest.fixture
def page() -> Iterator[Page]:
    with chromium() as browser:
        context = browser.new_context()
        context.set_default_timeout(30_000)
        expect.set_options(timeout=30_000)
        yield context.new_page()


def test_a_page_of_a_task_works_outlives_its_server_and_cannot_reach_the_dashboard(
    site: Site,  # noqa: F811
    register: Register,  # noqa: F811
    admin: User,
    page: Page,
) -> None:
    page.goto(site.home + site.app.state.web.login_path(viewer_of("ann", is_admin=False, may_write=True)))
    page.wait_for_url("**/jobs")
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
    page.reload()
    expect(page.locator("body")).to_contain_text("does not answer")
    with task_server(port):
        expect(page.locator("#echo")).to_have_text("hello ")  # the page came back by itself
