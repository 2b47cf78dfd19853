"""What servers of users are told and may answer: cookies, paths, headers that hold for the whole host."""

import pytest

from rigging.web.cookies import cookies_named
from rigging.web.proxy.headers import FRAME_POLICY, Upstream, request_headers, response_headers

SERVER = Upstream("::1", 80, "/proxy/ann/a/b")
OWN = frozenset({"session"})


@pytest.mark.parametrize(
    ("cookies", "values"),
    [
        ("session=x", ["x"]),
        ('a=b; session="x="', ["x="]),
        ("session=x; session=y", ["x", "y"]),
        ("session=x; =session=y", ["x"]),
        ("sessions=x; session-1=x", []),
    ],
)
def test_all_cookies_of_the_name_are_found(cookies: str, values: list[str]) -> None:
    assert cookies_named([(b"cookie", cookies.encode())], "session") == values


@pytest.mark.parametrize("cookie", ["session=x", "session-8080=x", " session =x", "=session=x", "session", "", "=x"])
def test_a_server_cannot_set_the_session(cookie: str) -> None:
    assert response_headers([(b"Set-Cookie", cookie.encode())], SERVER, OWN, "h") == [FRAME_POLICY]


def test_what_is_chunked_has_no_length_and_the_session_stays_here() -> None:
    given = [(b"host", b"h"), (b"transfer-encoding", b"chunked"), (b"content-length", b"3"), (b"cookie", b"session=x")]
    sent = dict(request_headers(given, SERVER, OWN, "http", ""))
    assert sent == {
        b"host": b"h",
        b"x-forwarded-host": b"h",
        b"x-forwarded-proto": b"http",
        b"x-forwarded-prefix": b"/proxy/ann/a/b",
    }


def test_paths_are_cut_as_they_came() -> None:
    assert SERVER.authority == "[::1]:80"
    assert SERVER.target(b"/proxy/ann/a/b") is None
    assert SERVER.target(b"/proxy/ann/a/b/") == b"/"
    assert SERVER.target(b"/proxy/ann/a/%62/x%2F..//y") == b"/x%2F..//y"
