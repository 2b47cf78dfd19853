"""Pages of tasks behind the login of the dashboard: passed on, at an origin of their own, to their users alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import grpc
import httpx2
import pytest
from starlette.testclient import TestClient
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect

from iris.dashboard.application import make_application
from iris.dashboard.cluster_client import viewer_of
from iris.dashboard.endpoint_rules import chosen, names_in, upstream_of
from iris.rpc.generated import access_pb2, endpoints_pb2, endpoints_pb2_grpc
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.protocol import call_metadata
from rigging.errors import Denied, InvalidRequest, MarinError, NotFound, Unavailable
from rigging.web.serving import bind
from support.iris.controller import RunningController
from support.iris.users import User
from support.iris.worker import ScriptedWorker
from support.rigging.web import served

from .conftest import BASE, settings_for
from .task_server import task_server

HTTP = {"protocol": "http"}
Register = Callable[[str, str, Mapping[str, str]], None]


class Site:
    """The dashboard and the port beside it, served; browsers of people who are signed in."""

    def __init__(self, app: Any, home: str, tasks: str) -> None:
        self.app, self.home, self.tasks = app, home, tasks

    def cookie(self, user: str, *, is_admin: bool = False, token_id: str = "") -> str:
        viewer = viewer_of(user, is_admin=is_admin, may_write=True, token_id=token_id)
        return f"{self.app.state.web.settings.cookie}={self.app.state.web.sessions.open(viewer)}"

    def browser(self, user: str, *, is_admin: bool = False, **headers: str) -> httpx2.Client:
        return httpx2.Client(base_url=self.tasks, headers={"cookie": self.cookie(user, is_admin=is_admin), **headers})


@pytest.fixture
def site(controller: RunningController) -> Iterator[Site]:
    home, tasks = bind(0), bind(0)
    app, live = make_application(settings_for(controller), others=(), task_port=tasks.port, home_port=home.port)
    with served((app, home), (app.state.task_pages, tasks)):
        yield Site(app, home.url, tasks.url)
        live.broadcaster.close()


@pytest.fixture
def register(controller: RunningController, admin: User, worker: ScriptedWorker) -> Iterator[Register]:
    """Registers endpoints of a job of ann's."""
    admin.submit("/ann/a")
    worker.wait_for_start("/ann/a/0:0")
    token = controller.attempt_token("/ann/a/0:0")
    with grpc.insecure_channel(str(controller.address)) as channel:
        stub = endpoints_pb2_grpc.EndpointServiceStub(channel)

        def call(leaf: str, address: str, metadata: Mapping[str, str]) -> None:
            request = endpoints_pb2.RegisterEndpointRequest(
                name=leaf, attempt_id="/ann/a/0:0", address=address, metadata=metadata
            )
            stub.Register(request, metadata=call_metadata(token))

        yield call


@pytest.fixture
def board(register: Register) -> Iterator[int]:
    with task_server() as port:
        register("board", f"127.0.0.1:{port}", HTTP)
        yield port


def test_requests_are_passed_on_without_the_session(site: Site, board: int) -> None:
    ann = site.browser("ann")
    others = "theirs=1; marin-session=x; marin-session-browser-80=x; iris-session-0a0a0a0a=x"
    sent = {
        "origin": site.tasks, "cookie": f"{site.cookie('ann')}; {others}", "x-form-token": "t",
        "x-forwarded-prefix": "/forged", "connection": "x-hop", "x-hop": "1",
    }  # fmt: skip
    answer = ann.put("/proxy/ann/a/board/x%2Fy/../z?a=%20b", content=b"12345", headers=sent).json()
    headers, host = answer["headers"], site.tasks.removeprefix("http://")
    assert (answer["method"], answer["size"], answer["path"][-7:]) == ("PUT", 5, "?a=%20b")
    wanted = {
        "cookie": "theirs=1", "host": host, "x-forwarded-prefix": "/proxy/ann/a/board", "x-forwarded-host": host,
        "x-forwarded-proto": "http", "x-forwarded-for": "127.0.0.1",
    }  # fmt: skip
    assert {name: headers[name] for name in wanted} == wanted
    assert not {"x-form-token", "x-hop"} & set(headers)
    first = ann.get("/proxy/ann/a/board?q=1")
    assert (first.status_code, first.headers["location"]) == (307, "/proxy/ann/a/board/?q=1")


def test_answers_stay_below_their_path_and_leave_the_session_alone(site: Site, board: int) -> None:
    ann = site.browser("ann")
    below = "/proxy/ann/a/board/next?x=1"
    ways = dict.fromkeys(("/next?x=1", f"http://127.0.0.1:{board}/next?x=1", f"{site.tasks}/next?x=1"), below)
    for to, led in {**ways, "next": "next", "https://example.com/next": "https://example.com/next"}.items():
        assert ann.get("/proxy/ann/a/board/away", params={"to": to}).headers["location"] == led
    answer = ann.get("/proxy/ann/a/board/cookies")
    assert answer.headers.get_list("set-cookie") == ["mine=1; SameSite=lax; Path=/proxy/ann/a/board/"]
    assert not {"service-worker-allowed", "clear-site-data", "x-private"} & set(answer.headers)
    assert answer.headers["content-security-policy"] == "frame-ancestors 'self'"


def test_bodies_are_streamed(site: Site, board: int) -> None:
    ann = site.browser("ann")
    with ann.stream("GET", "/proxy/ann/a/board/slow") as answer:
        pieces = answer.iter_raw()
        assert next(pieces) == b"one"  # the server sends the second only after this was read
        ann.get("/proxy/ann/a/board/go-on")
        assert b"".join(pieces) == b"two"
    sent = iter([b"x" * 100_000] * 30)
    answer = ann.post("/proxy/ann/a/board/up", content=sent, headers={"origin": site.tasks})
    assert answer.json()["size"] == 3_000_000


def test_websockets_are_passed_on_both_ways(site: Site, board: int) -> None:
    address = site.tasks.replace("http", "ws") + "/proxy/ann/a/board/echo"
    headers = {"origin": site.tasks, "cookie": site.cookie("ann")}
    with connect(address, additional_headers=headers, subprotocols=["chat", "other"], proxy=None) as socket:  # type: ignore[list-item]
        assert socket.subprotocol == "chat"
        socket.send("hello")
        assert socket.recv() == "hello "  # and no cookie
        socket.send("end")
        with pytest.raises(ConnectionClosedError) as closed:
            socket.recv()
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4000, "as you wish")
    for wrong in ({}, {"cookie": headers["cookie"]}, {**headers, "origin": site.home}, {"origin": site.tasks}):
        with pytest.raises(InvalidStatus):
            connect(address, additional_headers=wrong, proxy=None)
    with pytest.raises(InvalidStatus) as refused:
        connect(address.replace("board/echo", "none"), additional_headers=headers, proxy=None)
    assert refused.value.response.status_code == 404


@pytest.mark.process
def test_what_is_open_ends_with_the_token_by_which_its_user_signed_in(site: Site, board: int, admin: User) -> None:
    lost, kept = (admin.stubs.cluster.CreateToken(pb.CreateTokenRequest(user="ann")).token_id for _ in "ab")
    address = site.tasks.replace("http", "ws") + "/proxy/ann/a/board/echo"
    cookies = {token: site.cookie("ann", token_id=token) for token in (lost, kept)}
    headers = {token: {"cookie": cookie, "origin": site.tasks} for token, cookie in cookies.items()}
    with (
        connect(address, additional_headers=headers[lost], proxy=None) as socket,
        connect(address, additional_headers=headers[kept], proxy=None) as other,
        httpx2.stream("GET", site.home + "/events", headers={"cookie": cookies[lost]}, timeout=60) as events,
    ):
        news = events.iter_lines()
        assert next(line for line in news if line.startswith("event")) == "event: hello"
        admin.stubs.access.RevokeUserToken(access_pb2.RevokeUserTokenRequest(token_id=lost))
        assert "event: over" not in list(news), "the stream has ended, and the page asks why"
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=60)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1008, "signed out")
        other.send("still here")
        assert other.recv(timeout=60) == "still here "
    for url in (site.home + "/session", site.home + "/events", site.tasks + "/proxy/ann/a/board/"):
        assert httpx2.get(url, headers={"cookie": cookies[lost]}).status_code == 401


@pytest.mark.process
def test_only_their_users_open_them_and_only_what_speaks_http(site: Site, board: int, register: Register) -> None:
    register("counter", f"127.0.0.1:{board}", {"iris.actor": "counter"})
    register("elsewhere", "169.254.169.254:80", HTTP)
    path = "/proxy/ann/a/board/x"
    assert site.browser("ann").get(path).status_code == 200
    assert "you are 'bob'" in site.browser("bob").get(path).text.replace("&#39;", "'")
    for user, is_admin, place, status in (
        ("bob", False, path, 403),
        ("root", True, path, 403),
        ("ann", False, "/proxy/ann/a/counter/", 404),
        ("ann", False, "/proxy/ann/a/none/", 404),
        ("ann", False, "/jobs", 404),
        ("ann", False, "/proxy/ann/a/elsewhere/", 403),
    ):
        answer = site.browser(user, is_admin=is_admin).get(place)
        assert answer.status_code == status, (user, place, answer.text)
        assert "form-token" not in answer.text.replace("_", "-")
    assert httpx2.get(site.tasks + path).status_code == 401
    twice = {"cookie": site.cookie("ann") + "; " + site.cookie("ann")}
    assert httpx2.get(site.tasks + path, headers=twice).status_code == 401
    ann = site.browser("ann")
    for wrong in ({"host": "evil.example"}, {"origin": site.home}, {"sec-fetch-site": "same-site"}):
        assert ann.get(path, headers=wrong).status_code == 403, wrong
    assert ann.post(path).status_code == 403


def test_the_dashboard_leads_there_and_has_links(site: Site, board: int, register: Register) -> None:
    register("counter", "127.0.0.1:1", {})
    home = httpx2.Client(base_url=site.home, headers={"cookie": site.cookie("ann")})
    answer = home.get("/proxy/ann/a/board/x%20y?z=1")
    assert answer.headers["location"] == f"{site.tasks}/proxy/ann/a/board/x%20y?z=1"
    page = home.get("/endpoints").text
    assert 'href="/proxy/ann/a/board/"' in page
    assert 'href="/proxy/ann/a/counter/"' not in page
    others = httpx2.get(f"{site.home}/endpoints", headers={"cookie": site.cookie("root", is_admin=True)}).text
    assert "/ann/a/board" in others
    assert 'href="/proxy/' not in others


def test_whole_paths_and_a_server_that_is_gone_and_found_again(site: Site, register: Register) -> None:
    ann = site.browser("ann")
    with task_server() as port:
        register("board", f"127.0.0.1:{port}", HTTP)
        register("notebook", f"127.0.0.1:{port}", {**HTTP, "path": "whole"})
        assert ann.get("/proxy/ann/a/notebook/tree?x=1").json()["path"] == "/proxy/ann/a/notebook/tree?x=1"
        assert ann.get("/proxy/ann/a/board/x").status_code == 200
    answer = ann.get("/proxy/ann/a/board/x")
    assert (answer.status_code, "does not answer" in answer.text, "retries" in answer.text) == (502, True, True)
    with task_server(port):
        assert ann.get("/proxy/ann/a/board/x").status_code == 200


@pytest.mark.process
def test_pages_that_installed_packages_offer_are_for_admins(controller: RunningController) -> None:
    app, _ = make_application(settings_for(controller))
    sessions = app.state.web.sessions
    with TestClient(app, base_url=BASE) as client:
        for is_admin, status in ((False, 403), (True, 200)):
            session = sessions.open(viewer_of("ann", is_admin=is_admin, may_write=False))
            headers = {"cookie": f"{app.state.web.settings.cookie}={session}"}
            assert client.get("/experiments/runs", headers=headers).status_code == status
            assert ("/experiments/runs" in client.get("/jobs", headers=headers).text) is is_admin


def row(name: str, address: str = "10.0.0.2:80", at: int = 0, **metadata: str) -> dict[str, Any]:
    text = json.dumps(metadata or HTTP)
    return {"name": name, "address": address, "metadata": text, "attempt_id": "/ann/a/0:0", "registered_at_ms": at}


def test_the_longest_name_is_meant_and_of_several_the_first() -> None:
    names = names_in(["proxy", "ann", "a", "b", "c", "d"], "ann")
    assert names == ["/ann/a/b/c/d", "/ann/a/b/c", "/ann/a/b"]
    assert chosen([row("/ann/a/b"), row("/ann/a/b/c")], names)["name"] == "/ann/a/b/c"
    assert chosen([row("/ann/a/b", at=2), row("/ann/a/b", at=1)], names)["registered_at_ms"] == 1
    with pytest.raises(NotFound, match="protocol=http"):
        chosen([row("/ann/a/b"), row("/ann/a/b/c", x="y")], names)


@pytest.mark.parametrize(
    ("address", "worker", "error"),
    [
        ("10.0.0.2:80", "10.0.0.2", None),
        ("localhost:80", "unix", None),
        ("[::1]:80", "127.0.0.1", None),
        ("192.168.1.5:80", "unix", None),
        ("10.0.0.3:80", "10.0.0.2", Denied),
        ("127.0.0.1:80", "10.0.0.2", Denied),
        ("169.254.169.254:80", "unix", Denied),
        ("metadata.internal:80", "10.0.0.2", Denied),
        ("10.0.0.2:80", "", Unavailable),
        ("10.0.0.2", "10.0.0.2", InvalidRequest),
        ("10.0.0.2:99999", "10.0.0.2", InvalidRequest),
        ("10.0.0.2:8²", "10.0.0.2", InvalidRequest),
    ],
)
def test_only_the_host_of_the_task_is_asked(address: str, worker: str, error: type[MarinError] | None) -> None:
    if error is None:
        assert upstream_of(row("/ann/a/b", address), worker, {"192.168.1.5"}).port == 80
    else:
        with pytest.raises(error):
            upstream_of(row("/ann/a/b", address), worker, {"192.168.1.5"})
