"""The headers of requests to a user's server, and of answers to the browser. Pure.

The server and its pages must not learn the viewer's session: all ports of a host share cookies, and some answer headers
would apply to the whole host.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes, urlsplit, urlunsplit

from rigging.web.cookies import is_session_cookie
from rigging.web.writes import TOKEN_HEADER

Header = tuple[bytes, bytes]

_HOP_BY_HOP: Final = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
        b"trailer", b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
_NOT_ASKED: Final = frozenset({b"expect", b"forwarded", b"x-real-ip", TOKEN_HEADER.encode()})
_FORWARDED: Final = b"x-forwarded-"
_WEBSOCKET: Final = b"sec-websocket-"
#: They would hold for other ports of the host, or for the pages of other servers behind this one.
_NOT_ANSWERED: Final = frozenset(
    {b"service-worker-allowed", b"clear-site-data", b"strict-transport-security", b"alt-svc", b"origin-agent-cluster"}
)
_LOCATIONS: Final = frozenset({b"location", b"content-location"})
#: Added to what the answer has of its own: pages of other origins do not show these in a frame.
FRAME_POLICY: Final = (b"content-security-policy", b"frame-ancestors 'self'")


@dataclass(frozen=True, slots=True)
class Upstream:
    """A user's server.

    Attributes:
        host: Its address, without brackets.
        port: Its port.
        prefix: The path prefix at which it is shown, without a trailing slash.
        keeps_prefix: Whether it receives whole paths, including the prefix.
    """

    host: str
    port: int
    prefix: str
    keeps_prefix: bool = False

    @property
    def authority(self) -> str:
        """The address and port in URL form."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def target(self, raw_path: bytes) -> bytes | None:
        """Return the path to request from the server; None for the prefix itself without its slash.

        Args:
            raw_path: The raw path of the request.
        """
        depth = self.prefix.count("/") + 1
        parts = raw_path.split(b"/", depth)
        if len(parts) <= depth:
            return None
        return raw_path if self.keeps_prefix else b"/" + parts[depth]


def segments_of(raw_path: bytes) -> list[str]:
    """Return the decoded segments of a path."""
    return [unquote_to_bytes(part).decode("utf-8", "replace") for part in raw_path.split(b"/")[1:]]


def request_headers(
    headers: Iterable[Header], upstream: Upstream, own_cookies: Collection[str], scheme: str, client: str
) -> list[Header]:
    """Return the headers to send to a server.

    Args:
        headers: The request's headers, with names in lower case. `Host` is kept, because servers compare `Origin` with
            it.
        upstream: The server.
        own_cookies: Kinds of cookies that the server must not see (`is_session_cookie`).
        scheme: "http" or "https".
        client: The viewer's address; "" if unknown.
    """
    headers = list(headers)
    dropped = _HOP_BY_HOP | _NOT_ASKED | _named_by_connection(headers)
    found: list[Header] = []
    for name, value in headers:
        if name in dropped or name.startswith((_FORWARDED, _WEBSOCKET)):
            continue
        if name == b"cookie":
            value = _without_cookies(value, own_cookies)
            if not value:
                continue
        found.append((name, value))
    host = dict(headers).get(b"host", b"")
    # The length of what is chunked is not known, whatever the request says besides.
    if any(name == b"transfer-encoding" for name, _ in headers):
        found = [(name, value) for name, value in found if name != b"content-length"]
    found += [
        (b"x-forwarded-host", host),
        (b"x-forwarded-proto", scheme.encode()),
        (b"x-forwarded-prefix", upstream.prefix.encode()),
    ]
    return [*found, (b"x-forwarded-for", client.encode())] if client else found


def response_headers(
    headers: Iterable[Header], upstream: Upstream, own_cookies: Collection[str], host: str
) -> list[Header]:
    """Return the headers to send to the browser.

    Args:
        headers: The headers of the server's answer.
        upstream: The server.
        own_cookies: Kinds of cookies that the server must not set (`is_session_cookie`).
        host: The request's `Host`.
    """
    headers = [(name.lower(), value) for name, value in headers]
    dropped = _HOP_BY_HOP | _NOT_ANSWERED | _named_by_connection(headers)
    found: list[Header] = []
    for name, value in headers:
        if name in dropped:
            continue
        if name in _LOCATIONS:
            value = _below_prefix(value.decode("latin-1"), upstream, host).encode("latin-1")
        elif name == b"set-cookie":
            cookie = _confined_cookie(value.decode("latin-1"), upstream, own_cookies)
            if cookie is None:
                continue
            value = cookie.encode("latin-1")
        found.append((name, value))
    return [*found, FRAME_POLICY]


def _named_by_connection(headers: Iterable[Header]) -> frozenset[bytes]:
    return frozenset(
        word.strip().lower() for name, value in headers if name == b"connection" for word in value.split(b",")
    )


def _without_cookies(header: bytes, own: Collection[str]) -> bytes:
    parts = [part.strip() for part in header.split(b";")]
    return b"; ".join(
        part for part in parts if part and not is_session_cookie(_cookie_name(part.decode("latin-1")), own)
    )


def _cookie_name(pair: str) -> str:
    # A cookie without a name is sent as its value alone, which then reads as a name and a value.
    name, equals, value = pair.partition("=")
    return name.strip() if equals and name.strip() else (value if equals else name).partition("=")[0].strip()


def _confined_cookie(text: str, upstream: Upstream, own: Collection[str]) -> str | None:
    """Return a cookie that is sent only to this server; None for one that it must not set."""
    pair, *attributes = text.split(";")
    name = pair.partition("=")[0].strip()
    if "=" not in pair or not name or is_session_cookie(_cookie_name(pair), own):
        return None
    kept = [pair.strip()]
    path = f"{upstream.prefix}/"
    for attribute in attributes:
        key, _, value = attribute.strip().partition("=")
        if key.strip().lower() == "path":
            # As in browsers the last one counts.
            path = _prefixed(value.strip(), upstream) if value.strip().startswith("/") else path
        elif key.strip().lower() != "domain":
            kept.append(attribute.strip())
    return "; ".join([*kept, f"Path={path}"])


def _below_prefix(location: str, upstream: Upstream, host: str) -> str:
    """Return an address on the server as the browser must request it. Relative and foreign addresses stay unchanged."""
    try:
        parts = urlsplit(location)
    except ValueError:
        return location
    if parts.netloc:
        if parts.scheme not in ("", "http", "https") or parts.netloc.lower() not in (upstream.authority, host.lower()):
            return location
        path = parts.path or "/"
    elif not parts.scheme and parts.path.startswith("/"):
        path = parts.path
    else:
        return location
    return urlunsplit(("", "", _prefixed(path, upstream), parts.query, parts.fragment))


def _prefixed(path: str, upstream: Upstream) -> str:
    has_it = path == upstream.prefix or path.startswith(f"{upstream.prefix}/")
    return path if has_it else upstream.prefix + path
