"""An application of page sets: who is let in, what answers carry, what errors tell."""

import asyncio
import errno
import logging
import re

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect

from rigging.errors import InvalidRequest, NotFound
from rigging.web.app import create_app
from rigging.web.context import Web, WebSettings, may_write, viewer_of
from rigging.web.login import LoginLinks, Sessions, Viewer
from rigging.web.pages import NavItem, PageSet, query_text
from rigging.web.security import SANDBOX_POLICY
from rigging.web.writes import write_route
from support.rigging.clock import FakeClock

BASE = "http://127.0.0.1:8000"
SELF = {"origin": BASE}


def _hello(request: Request) -> Response:
    return PlainTextResponse(f"hello {viewer_of(request).name}, write: {may_write(request)}")


def _fails(request: Request) -> Response:
    raise RuntimeError("the password is hunter2")


def _missing(request: Request) -> Response:
    raise NotFound(f"no job {query_text(request, 'job')!r}")


def _broken_disk(request: Request) -> Response:
    kind = request.query_params["kind"]
    raise OSError(getattr(errno, kind), f"words of {kind}", "/secret/path")


async def _socket(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text(f"hello {viewer_of(socket).name}")
    await socket.close()


OWN_POLICY = {"content-security-policy": SANDBOX_POLICY}


def _page_set(written: list[dict[str, str]]) -> PageSet:
    async def write(request: Request, form: dict[str, str]) -> Response:
        written.append(form)
        return PlainTextResponse("done")

    return PageSet(
        "things",
        [
            Route("/hello", _hello),
            Route("/fails", _fails),
            Route("/missing", _missing),
            Route("/broken-disk", _broken_disk),
            Route("/own-policy", lambda request: PlainTextResponse("x", headers=OWN_POLICY)),
            WebSocketRoute("/socket", _socket),
            Route("/health", lambda request: PlainTextResponse("ok")),
            write_route("/write", write),
        ],
        nav=[NavItem("Hello", "/hello")],
        public_paths=frozenset({"/health"}),
    )


class Site:
    def __init__(self, settings: WebSettings | None = None, viewer: Viewer | None = None, **parts: object) -> None:
        self.written: list[dict[str, str]] = []
        app = create_app(settings or WebSettings("test", home="/hello"), [_page_set(self.written)], **parts)  # type: ignore[arg-type]
        self.web: Web = app.state.web
        self.client = TestClient(app, BASE, raise_server_exceptions=False)
        if viewer is not None:
            assert self.client.get(self.web.login_path(viewer)).status_code == 200

    def form_token(self) -> str:
        found = re.search(r'name="form_token" value="([0-9a-f]+)"', self.client.get("/login").text)
        return found[1]


def test_nobody_who_is_not_signed_in_sees_a_page_and_is_told_how_to_sign_in() -> None:
    site = Site(WebSettings("test", login_hint="run `iris cluster dashboard`"))
    for path in ("/hello", "/session", "/no-such-page", "/"):
        answer = site.client.get(path)
        assert answer.status_code == 401, path
        assert "run `iris cluster dashboard`" in answer.text
    assert site.client.post("/write", headers=SELF).status_code == 401
    assert site.client.get("/health").text == "ok"  # public


def test_a_link_signs_in_once_and_its_cookie_is_strict() -> None:
    site = Site()
    path = site.web.login_path(Viewer("ann"))
    assert "set-cookie" not in site.client.head(path).headers, "a look at it does not use it up"
    cookie = site.client.get(path).headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert site.client.get("/hello").text == "hello ann, write: False"
    again = site.client.get(path)
    assert (again.status_code, "set-cookie" in again.headers) == (200, False)
    assert "Continue" in again.text, "where it signed in it leads on"
    thief = TestClient(site.client.app, BASE)
    stolen = thief.get(path)
    assert stolen.status_code == 403
    assert "already used" in stolen.text
    assert thief.get("/hello").status_code == 401


def test_a_link_may_be_pasted_into_the_form_but_not_by_another_site() -> None:
    site = Site()
    link = BASE + site.web.login_path(Viewer("ann"))
    assert site.client.post("/login", data={"token": link}, headers={"origin": "http://evil.test"}).status_code == 403
    assert site.client.post("/login", data={"token": link}, headers=SELF).status_code == 200
    assert site.client.get("/hello").text.startswith("hello ann")


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("/hello", "/hello"),
        ("/hello?run=a%2Fb&amp=%22%3E", "/hello?run=a%2Fb&amp;amp=%22%3E"),
        ("/a%20b/%22%3E;url=x", "/a%20b/%22%3E%3Burl%3Dx"),
        (f"{BASE}//evil.test/x", "/evil.test/x"),
    ],
)
def test_a_link_on_another_site_leads_to_its_page_although_the_cookie_is_strict(path: str, address: str) -> None:
    site = Site()
    by_a_link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    answer = site.client.get(path, headers=by_a_link)
    assert answer.status_code == 401
    assert f'content="0;url={address}"' in answer.text
    # The browser asks again from this server's own page, and says so: with the cookie, or else to be told to sign in.
    own = {**by_a_link, "sec-fetch-site": "same-origin"}
    assert "http-equiv" not in site.client.get(path, headers=own).text


def test_links_and_sessions_end() -> None:
    clock = FakeClock(1000.0)
    links, sessions = LoginLinks[Viewer](60, now=clock.now), Sessions(seconds=600, now=clock.now)
    site = Site(links=links, sessions=sessions)
    late, in_time = links.issue(Viewer("ann")), links.issue(Viewer("ann"))
    clock.advance(59)
    assert site.client.get(f"/login?token={in_time}").status_code == 200
    clock.advance(2)
    assert TestClient(site.client.app, BASE).get(f"/login?token={late}").status_code == 403
    assert site.client.get("/hello").status_code == 200
    clock.advance(600)
    assert site.client.get("/hello").status_code == 401


def test_a_session_outlives_the_server_with_its_key_and_no_other() -> None:
    key = b"k" * 32
    first = Site(sessions=Sessions(key), viewer=Viewer("ann"))
    for sessions, expected in ((Sessions(key), 200), (Sessions(b"o" * 32), 401), (Sessions(), 401)):
        second = Site(sessions=sessions)
        second.client.cookies = first.client.cookies
        assert second.client.get("/hello").status_code == expected


def test_forged_cookies_are_worthless_and_another_session_beside_it_signs_out() -> None:
    sessions = Sessions()
    for cookie in ("", ".", "x.y", "é.é", "W10=.00", "a" * 5000):
        assert sessions.read(cookie) is None
    ann, bob = (sessions.open(Viewer(name)) for name in ("ann", "bob"))
    for cookies, name in (([ann], "ann"), (["x", ann, "", ann], "ann"), ([ann, bob], None), (["x", "y"], None)):
        found = sessions.of_cookies(cookies)
        assert (found and found.viewer.name) == name


def test_sockets_need_a_login_and_signing_out_ends_it_also_for_who_copied_the_cookie() -> None:
    site = Site(viewer=Viewer("ann"))
    own = {"origin": BASE, "host": "127.0.0.1:8000"}
    cookies = dict(site.client.cookies)
    header = "; ".join(f"{name}={value}" for name, value in cookies.items())
    with site.client.websocket_connect("/socket", headers={**own, "cookie": header}) as socket:
        assert socket.receive_text() == "hello ann"
    stranger, thief = TestClient(site.client.app, BASE), TestClient(site.client.app, BASE, cookies=cookies)
    with pytest.raises(WebSocketDisconnect), stranger.websocket_connect("/socket", headers=own):
        pass
    assert thief.get("/hello").status_code == 200
    site.client.post("/logout", data={"form_token": site.form_token()}, headers=SELF)
    assert thief.get("/hello").status_code == 401


OTHERS = [
    *(
        ({"host": host}, "not a name of this server")
        for host in ("evil.test", "evil.test:8000", "127.0.0.1.evil.test", "")
    ),
    ({"host": "10.0.0.7"}, "not a name of this server"),
    *(({"origin": origin}, "origin") for origin in ("http://evil.test", "null", "http://127.0.0.1:9999")),
    ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, "another site"),
    ({"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"}, "another site"),
]


@pytest.mark.parametrize(("headers", "words"), OTHERS)
def test_requests_of_other_sites_and_names_are_refused(headers: dict[str, str], words: str) -> None:
    site = Site(viewer=Viewer("ann"))
    answer = site.client.get("/hello", headers=headers)
    assert answer.status_code == 403
    assert words in answer.text
    # Sockets of other sites too, and those that do not say of which they are.
    own = {"host": "127.0.0.1:8000"} if "origin" in headers else {}
    with pytest.raises(WebSocketDisconnect) as refused, site.client.websocket_connect("/socket", headers=own | headers):
        pass
    assert refused.value.code == 1008


@pytest.mark.parametrize("host", ["localhost:1234", "127.0.0.1", "[::1]:80", "LOCALHOST", "lab.example:8000"])
def test_the_servers_own_names_are_let_in_and_links_from_elsewhere_work(host: str) -> None:
    site = Site(WebSettings("test", allowed_hosts=frozenset({"lab.example"})))
    headers = {"host": host, "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert site.client.get("/health", headers=headers).text == "ok"
    anywhere = Site(WebSettings("test", any_address=True)).client
    for name, status in (("10.0.0.7:80", 200), ("evil.test", 403)):
        assert anywhere.get("/health", headers={"host": name}).status_code == status, "where that is said"


def test_a_write_needs_origin_session_token_and_leave() -> None:
    writer = Viewer("ann", may_write=True)
    site = Site(WebSettings("test", writable=True), writer)
    token = site.form_token()
    client = site.client
    assert client.post("/write", data={"form_token": token}).status_code == 403  # no origin
    evil = {"origin": "http://evil.test"}
    assert client.post("/write", data={"form_token": token}, headers=evil).status_code == 403
    for wrong in ("", "é", token[:-1] + ("0" if token[-1] != "0" else "1")):
        answer = client.post("/write", data={"form_token": wrong}, headers=SELF)
        assert answer.status_code == 403
        assert "belongs to another session" in answer.text
    other = Site(WebSettings("test", writable=True), writer).form_token()
    assert client.post("/write", data={"form_token": other}, headers=SELF).status_code == 403
    assert client.get("/write").status_code == 405
    assert site.written == []
    assert client.post("/write", data={"form_token": token, "job": "a"}, headers=SELF).text == "done"
    by_header = client.post("/write", data={"job": "b"}, headers={**SELF, "x-form-token": token})
    assert by_header.text == "done"
    assert site.written == [{"job": "a"}, {"job": "b"}]


@pytest.mark.parametrize(("writable", "may"), [(False, True), (True, False)])
def test_pages_are_read_only_unless_both_server_and_viewer_may_write(writable: bool, may: bool) -> None:
    site = Site(WebSettings("test", writable=writable), Viewer("ann", may_write=may))
    answer = site.client.post("/write", data={"form_token": site.form_token()}, headers=SELF)
    assert answer.status_code == 403
    assert "read-only" in answer.text
    assert site.written == []


def test_every_answer_has_the_strict_headers_unless_it_has_its_own() -> None:
    site = Site(viewer=Viewer("ann"))
    for path in ("/hello", "/login", "/no-such-page", "/static/web/page.css", "/fails"):
        headers = site.client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"  # without any, forms would come from "null"
    assert site.client.get("/own-policy").headers["content-security-policy"] == SANDBOX_POLICY


def test_errors_tell_what_is_known_and_nothing_else() -> None:
    site = Site(viewer=Viewer("ann"))
    failed = site.client.get("/fails")
    assert failed.status_code == 500
    assert "hunter2" not in failed.text
    assert "mark" in failed.text
    missing = site.client.get("/missing", params={"job": "<script>alert(1)</script>"})
    assert missing.status_code == 404
    assert "<script>alert" not in missing.text
    assert "&lt;script&gt;" in missing.text

    assert site.client.get("/missing", params={"job": "x" * 5000}).status_code == 400
    assert site.client.get("/nothing").status_code == 404


@pytest.mark.parametrize(
    ("kind", "status"),
    [("ENAMETOOLONG", 404), ("ELOOP", 404), ("ENOENT", 404), ("ENOTDIR", 404), ("EACCES", 403), ("EIO", 503)],
)
def test_what_storage_refuses_is_no_failure_of_the_server(kind: str, status: int) -> None:
    answer = Site(viewer=Viewer("ann")).client.get("/broken-disk", params={"kind": kind})
    assert answer.status_code == status
    assert "/secret" not in answer.text
    assert (f"words of {kind}" in answer.text) == (status == 503)


def test_forms_that_are_huge_or_no_text_or_break_off_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    site = Site(WebSettings("test", writable=True), Viewer("ann", may_write=True))
    for body in (b"a=" + b"x" * (1 << 20), b"\xff\xfe", b"&a" * 1000):
        assert site.client.post("/write", content=body, headers=SELF).status_code == 400
    sent: list[Message] = []
    pieces = iter([{"type": "http.request", "body": b"a=", "more_body": True}, {"type": "http.disconnect"}])
    cookie = f"{site.web.settings.cookie}={site.web.sessions.open(Viewer('ann', may_write=True))}"
    headers = [(b"host", b"127.0.0.1:8000"), (b"origin", BASE.encode()), (b"cookie", cookie.encode())]
    scope = {"type": "http", "method": "POST", "path": "/write", "query_string": b"", "headers": headers}

    async def receive() -> Message:
        return next(pieces)

    async def send(message: Message) -> None:
        sent.append(message)

    caplog.clear()
    with caplog.at_level(logging.WARNING):
        asyncio.run(site.client.app(scope, receive, send))
    assert sent[0]["status"] == 400
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING], "no failure of the server"


def test_static_files_are_only_those_that_pages_load() -> None:
    client = Site(viewer=Viewer("ann")).client
    for path in ("web/../app.py", "web/%2e%2e/app.py", "web/VENDORED.md", "web/licenses/htmx.txt", "none/page.css"):
        assert client.get(f"/static/{path}").status_code == 404, path
    for path in ("web/", "", f"web/{'x' * 300}.css"):
        assert client.get(f"/static/{path}").status_code == 404, path
    page = client.get("/nothing").text
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page), "nothing from elsewhere"
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=", page), "nothing inline"


def test_static_files_may_be_kept_at_addresses_with_their_digest() -> None:
    site = Site()
    page = site.client.get("/login").text
    address = re.search(r'"(/static/web/page\.css\?v=[0-9a-f]{12})"', page)
    answer = site.client.get(address[1])
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-type"].startswith("text/css")


def test_without_login_everybody_reads_and_nobody_writes() -> None:
    site = Site(WebSettings("test", login=False, writable=True))
    assert site.client.get("/hello").text == "hello , write: False"
    assert site.client.post("/write", headers=SELF).status_code == 403
    with pytest.raises(InvalidRequest, match="'things'"):
        create_app(WebSettings("test"), [_page_set([]), _page_set([])])
    with site.client:
        pass
    environment = site.web.templates
    assert environment.cache is not None
    assert {name for _, name in environment.cache} == set(environment.list_templates()), "no page waits for them"
