"""Pages of tasks at host names of their own: the way in, and what one page has of another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from iris.dashboard.application import make_application
from iris.dashboard.cluster_client import viewer_of
from rigging.web.hosts import host_refusal
from rigging.web.proxy.own_hosts import OwnHosts
from rigging.web.serving import bind
from support.iris.controller import RunningController
from support.iris.users import User
from support.rigging.chromium import chromium_path
from support.rigging.web import served

from .conftest import settings_for
from .task_server import task_server
from .test_task_pages import HTTP, Register, Site, register  # noqa: F401  # fixtures

BOARD = OwnHosts("localhost").host_of("/proxy/ann/a/board")
OTHER = OwnHosts("localhost").host_of("/proxy/ann/a/other")


@pytest.fixture
def named(controller: RunningController) -> Iterator[Site]:
    home, tasks = bind(0), bind(0)
    settings = replace(settings_for(controller), task_pages_domain="localhost")
    app, live = make_application(settings, others=(), task_port=tasks.port, home_port=home.port)
    with served((app, home), (app.state.task_pages, tasks)):
        yield Site(app, home.url, tasks.url)
        live.broadcaster.close()


@pytest.fixture
def boards(register: Register) -> Iterator[int]:  # noqa: F811
    with task_server() as port:
        for leaf in ("board", "other"):
            register(leaf, f"127.0.0.1:{port}", HTTP)
        yield port


def test_names_are_labels_that_tell_servers_apart() -> None:
    hosts = OwnHosts("tasks.example.org")
    names = [hosts.host_of(f"/proxy/ann/a/{leaf}") for leaf in ("board", "Board", "böard", "x" * 90, "--", "b/oard")]
    assert len(set(names)) == len(names)
    for name in names:
        assert host_refusal(f"{name}:8788", {"*.tasks.example.org"}, any_address=False) is None, name
    for name in (
        "tasks.example.org", "a.b.tasks.example.org", ".tasks.example.org", "a_.tasks.example.org",
        "a.tasks.example.org.", "a.tasks.example.org.evil.org", "-a.tasks.example.org", "a.evil.org",
        "a.TASKS.example.org@evil.org", "x" * 64 + ".tasks.example.org",
    ):  # fmt: skip
        assert host_refusal(name, {"*.tasks.example.org"}, any_address=False) is not None, name
    assert host_refusal("a.localhost", frozenset(), any_address=True) is not None, "no wildcard is configured"


def test_a_ticket_lets_its_viewer_into_one_page_once(named: Site, boards: int) -> None:
    way, port = "/proxy/ann/a/board/x%20y?z=1", named.tasks.rpartition(":")[2]
    home = httpx2.Client(base_url=named.home, headers={"cookie": named.cookie("ann")})

    def at(host: str, path: str, **headers: str) -> httpx2.Response:
        return httpx2.get(named.tasks + path, headers={"host": f"{host}:{port}", **headers})

    def ticket() -> str:
        address = httpx2.URL(home.get(way).headers["location"])
        assert (address.host, address.port, address.path) == (BOARD, int(port), "/.enter")
        return address.raw_path.decode()

    entered = at(BOARD, entrance := ticket())
    assert (entered.status_code, entered.headers["location"]) == (303, way)
    cookie = entered.headers["set-cookie"].partition(";")[0]
    assert all(word in entered.headers["set-cookie"] for word in ("HttpOnly", "SameSite=lax", "Path=/"))
    told = at(BOARD, way, cookie=f"{cookie}; theirs=1").json()
    assert (told["path"], told["headers"]["cookie"]) == ("/x%20y?z=1", "theirs=1")
    assert [at(BOARD, way).status_code, at(BOARD, entrance).status_code] == [401, 403], "once"
    assert [at(OTHER, late := ticket()).status_code, at(BOARD, late).status_code] == [403, 403], "at its name"
    # The cookie is good here only, for this page only; the dashboard's is good at no page.
    assert at(OTHER, "/proxy/ann/a/other/", cookie=cookie).status_code == 401
    assert at(BOARD, "/proxy/ann/a/other/", cookie=cookie).status_code == 404
    assert at(BOARD, way, cookie=named.cookie("ann")).status_code == 401
    assert httpx2.get(f"{named.home}/jobs", headers={"cookie": cookie}).status_code == 401
    # At other names there is nothing: neither pages at the port, nor the dashboard at a page's name.
    plain = httpx2.get(named.tasks + way, headers={"cookie": named.cookie("ann")})
    assert plain.headers["location"] == named.home + way
    assert at("evil.example", way, cookie=cookie).status_code == 403
    assert home.get("/jobs", headers={"host": f"{BOARD}:1"}).status_code == 403
    assert httpx2.get(named.home + way, headers={"cookie": named.cookie("bob")}).status_code == 403
    # Signing out ends what was entered.
    named.app.state.web.sessions.end(named.app.state.web.sessions.read(home.headers["cookie"].partition("=")[2]))
    assert at(BOARD, way, cookie=cookie).status_code == 401


@pytest.mark.process
@pytest.mark.skipif(chromium_path() is None, reason="chromium is not installed: apt-get install chromium")
def test_cookies_and_storage_of_a_page_are_seen_by_no_other_page_nor_by_the_dashboard(
    named: Site, boards: int, admin: User, page: Any
) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    page.goto(named.home + named.app.state.web.login_path(viewer_of("ann", is_admin=False, may_write=True)))
    page.wait_for_url("**/cluster")
    port = named.tasks.rpartition(":")[2]
    page.goto(f"{named.home}/proxy/ann/a/board")
    assert page.url == f"http://{BOARD}:{port}/proxy/ann/a/board/"
    sync_api.expect(page.locator("#fetched")).to_have_text("/data?x=1")
    sync_api.expect(page.locator("#echo")).to_have_text("hello ")
    page.evaluate(
        """() => {
          for (const more of ["", "; domain=localhost", "; domain=" + location.hostname])
            document.cookie = "mine" + more.length + "=1; path=/; max-age=999" + more;
          localStorage.mine = 1;
        }"""
    )
    assert page.evaluate("document.cookie").count("mine") >= 1
    page.goto(f"{named.home}/proxy/ann/a/other")
    assert page.url == f"http://{OTHER}:{port}/proxy/ann/a/other/"
    assert page.evaluate("[document.cookie, localStorage.mine]") == ["", None]
    told = page.evaluate("fetch('tell').then(answer => answer.json())")
    assert "cookie" not in told["headers"]
    with page.expect_request("**/jobs") as request:
        page.goto(f"{named.home}/jobs")
    assert "mine" not in request.value.all_headers()["cookie"]
    # Not even cookies for all names below the domain, which the dashboard at `localhost` would get.
    assert {cookie["domain"].removeprefix(".") for cookie in page.context.cookies()} == {BOARD, OTHER, "127.0.0.1"}
