"""Every HTTP endpoint of the cluster's pages, the experiment pages and the proxy, asked in odd ways over real sockets.

Whatever is sent, the answer is a page or a refusal in words, never a failure of the server. `endpoints_of` finds
endpoints, and what each reads, so that a new one is tried without being listed here.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote_from_bytes, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from iris.dashboard.application import make_application
from iris.dashboard.cluster_client import viewer_of
from iris.dashboard.settings import Settings
from iris.rpc.auth import PrincipalKind
from iris.rpc.generated import endpoints_pb2, endpoints_pb2_grpc
from iris.rpc.protocol import call_metadata
from marin.browser.command import browser_app
from marin.browser.pages import pages_of
from marin.browser.site import make_site
from rigging.web.context import is_fragment
from rigging.web.events import last_event_id
from rigging.web.hosts import origin_refusal
from rigging.web.login import Viewer
from rigging.web.serving import Bound, bind
from rigging.web.writes import TOKEN_FIELD
from support.iris.controller import ControllerStubs, RunningController, channel_to, running_controller
from support.iris.users import User
from support.iris.worker import ScriptedWorker
from support.marin.sample_runs import sample_root
from support.rigging.endpoints import Endpoint, endpoints_of
from support.rigging.web import served

pytestmark = pytest.mark.process

EVERYWHERE = (is_fragment, last_event_id, origin_refusal)
"""Functions that look at every request."""
SECONDS = 10.0


@dataclass(frozen=True)
class Server:
    """A server's port on loopback, its endpoints, and the cookie and form token of somebody who is signed in there."""

    port: int
    endpoints: list[Endpoint]
    cookie: str
    form_token: str


def server_of(app: Starlette, bound: Bound, viewer: Viewer, endpoints: list[Endpoint] | None = None) -> Server:
    web = app.state.web
    value = web.sessions.open(viewer)
    session = web.sessions.read(value)
    found = endpoints_of(app.routes, EVERYWHERE) if endpoints is None else endpoints
    # Who signs out ends the session of all requests that follow.
    found = [endpoint for endpoint in found if endpoint.path != "/logout"]
    return Server(bound.port, found, f"{web.settings.cookie}={value}", web.sessions.form_token(session))


async def _tell(request: Request) -> Response:
    return JSONResponse({"size": len(await request.body()), "path": request.url.path})


def register(controller: RunningController, port: int) -> None:
    """Say that a task of ann's serves pages at a port."""
    with channel_to(controller.address) as channel:
        request = endpoints_pb2.RegisterEndpointRequest(
            name="board", attempt_id="/ann/a/0:0", address=f"127.0.0.1:{port}", metadata={"protocol": "http"}
        )
        token = controller.attempt_token("/ann/a/0:0")
        endpoints_pb2_grpc.EndpointServiceStub(channel).Register(request, metadata=call_metadata(token))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """The dashboard with the experiment pages below it, the port beside it, and `marin browser`."""
    folder = tmp_path_factory.mktemp("everything")
    root = folder / "prefix"
    root.mkdir()
    sample_root(root, shards=3)
    (root / "loop").symlink_to("loop")
    site = make_site(str(root), f"{root}/experiments", "/job?id=")
    home, beside, browser, board = (bind(0) for _ in range(4))
    with running_controller(folder / "state") as controller:
        stubs = ControllerStubs(controller.address, call_metadata(controller.token(PrincipalKind.ADMIN, "root")))
        with ScriptedWorker(controller.address, controller.worker_token("w1")) as worker:
            User(stubs).submit("/ann/a")
            worker.wait_for_start("/ann/a/0:0")
            register(controller, board.port)
            app, live = make_application(
                Settings(str(controller.address), controller.secret.hex(), "00" * 32),
                others=[pages_of(site)],
                task_port=beside.port,
                home_port=home.port,
            )
            experiments = browser_app(site, browser, b"k" * 32)
            upstream = Starlette(routes=[Route("/{path:path}", _tell, methods=["GET", "POST", "PUT", "DELETE"])])
            ann = viewer_of("ann", is_admin=True, may_write=True)
            proxied = [
                Endpoint(f"/proxy/ann/a/{name}/{{path:path}}", method, frozenset({"x"}), frozenset({"x"}), frozenset())
                for name in ("board", "none")
                for method in ("GET", "POST", "PUT", "DELETE", "HEAD")
            ]
            apps = ((app, home), (app.state.task_pages, beside), (experiments, browser), (upstream, board))
            with served(*apps):
                yield [
                    server_of(app, home, ann),
                    server_of(app, beside, ann, proxied),
                    server_of(experiments, browser, Viewer("ada")),
                ]
                live.broadcaster.close()
                site.stop()
        stubs.close()


def test_the_endpoints_are_those_that_are_documented(servers: list[Server]) -> None:
    dashboard, _, browser = ({endpoint.path: endpoint for endpoint in server.endpoints} for server in servers)
    documented = {"/jobs", "/job/stop", "/logs/follow", "/sql.csv", "/metrics", "/health", "/ready", "/events"}
    assert documented | {path for path in browser if path.startswith("/experiment")} <= set(dashboard)
    assert {"id", "grep", "level", "attempt", "since"} <= dashboard["/logs/follow"].query
    assert {"id", "do", "reason"} <= dashboard["/worker/cordon"].form
    assert {"host", "origin", "last-event-id", "hx-request"} <= dashboard["/jobs"].headers


_KNOWN = ("/ann/a", "/ann/a/0", "w1", "board", "pretrain-0a1b2c", "checkpoints/tiny-aaaaaa", "experiments", "loop")
_NUMBERS = ("0", "-1", "1", "2147483648", "9" * 10, "9" * 15, "9" * 25, "1e9", "NaN", "²")
_ODD = ("", "\0", "%", "(", ".*", "../x", "/", "*", "[", "x" * 300, "é" * 150, "a/" * 1500, "SELECT 1", "SELECT x'ff'")
TEXTS = st.one_of(st.sampled_from(_KNOWN + _NUMBERS + _ODD).map(str.encode), st.binary(max_size=30))
HEADER_VALUES = st.one_of(
    st.sampled_from([b"true", b"1-2", b"bytes=0-1", b"[::1", b"\xff", b"text/event-stream", b"a=b; a=c", b"x" * 3000]),
    st.binary(max_size=20).map(lambda value: value.replace(b"\r", b"").replace(b"\n", b"").replace(b"\0", b"")),
)
HEADERS = st.sampled_from(
    ["accept", "range", "cookie", "content-type", "if-none-match", "x-form-token", "upgrade", "x"]
)
BODIES = st.one_of(st.binary(max_size=40), st.just(b"x" * (1 << 20) + b"xx"))


@st.composite
def requests(draw: st.DrawFn, servers: list[Server]) -> tuple[int, bytes]:
    """A server's port, and the bytes of a request that it can parse, of which nothing else is as it should be."""
    server = draw(st.sampled_from(servers))
    endpoint = draw(st.sampled_from(server.endpoints))
    start, place, _ = endpoint.path.partition("{")
    path = start + (quote_from_bytes(draw(TEXTS), safe="/") if place else "")
    names = sorted(endpoint.query | {"x"})
    query = urlencode(draw(st.lists(st.tuples(st.sampled_from(names), TEXTS), max_size=4)))
    method = draw(st.sampled_from([endpoint.method, endpoint.method, "OPTIONS", "PATCH", "FOO"]))
    headers = {
        "host": f"127.0.0.1:{server.port}".encode(),
        "origin": f"http://127.0.0.1:{server.port}".encode(),
        "cookie": server.cookie.encode(),
        "connection": b"close",
    }
    read = HEADERS if not endpoint.headers else st.one_of(st.sampled_from(sorted(endpoint.headers)), HEADERS)
    headers |= draw(st.dictionaries(read, HEADER_VALUES, max_size=1))
    body = b""
    if endpoint.method != "GET" and endpoint.method != "HEAD":
        fields = draw(st.lists(st.tuples(st.sampled_from(sorted(endpoint.form | {"x"})), TEXTS), max_size=3))
        token = draw(st.sampled_from([server.form_token, "x"]))
        body = draw(st.one_of(st.just(urlencode([*fields, (TOKEN_FIELD, token)]).encode()), BODIES))
        headers["content-length"] = str(len(body)).encode()
    target = path + (f"?{query}" if query else "")
    lines = [f"{method} {target} HTTP/1.1".encode(), *(name.encode() + b": " + headers[name] for name in headers)]
    return server.port, b"\r\n".join(lines) + b"\r\n\r\n" + body


def status_of(port: int, request: bytes) -> int:
    """Return the status of the answer to a request, and look no further: some answers never end."""
    with socket.create_connection(("127.0.0.1", port), SECONDS) as connection:
        connection.sendall(request)
        answer = b""
        while b"\r\n" not in answer:
            piece = connection.recv(4096)
            assert piece, f"no answer to {request[:300]!r}"
            answer += piece
    return int(answer.split()[1])


@pytest.mark.parametrize("count", [80, pytest.param(10_000, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])])
def test_no_request_makes_a_server_fail(servers: list[Server], count: int) -> None:
    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    @given(requests(servers))
    def check(asked: tuple[int, bytes]) -> None:
        port, request = asked
        status = status_of(port, request)
        assert status < 500, (status, request[:600])

    check()
