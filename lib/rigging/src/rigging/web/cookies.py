"""Session cookies of a request. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final
from urllib.parse import quote

_MOST_BYTES: Final = 32 << 10
_LARGE_BYTES: Final = 1 << 10
_AT_ONCE: Final = 10
"""Names may have 4 kB, and browsers take answers' headers of some 256 kB."""
_MOST_DEEP: Final = 3


def cookies_named(headers: Iterable[tuple[bytes, bytes]], name: str) -> list[str]:
    """Return the values of a cookie. There are several if pages on other ports of this host set it for longer paths.

    Args:
        headers: The request's headers.
        name: The cookie's name.
    """
    # It is quoted where it has a "=" in it.
    return [
        part.partition("=")[2].strip().strip('"')
        for key, value in headers
        if key == b"cookie"
        for part in value.decode("latin-1").split(";")
        if part.partition("=")[0].strip() == name
    ]


def is_session_cookie(name: str, kinds: Collection[str]) -> bool:
    """Return whether a cookie is a session cookie. Browsers send cookies of all servers on a host to each of its ports.

    Args:
        name: The cookie's name.
        kinds: The names of such cookies, or their beginnings before a "-".
    """
    return any(name == kind or name.startswith(f"{kind}-") for kind in kinds)


def cleared_cookies(headers: Iterable[tuple[bytes, bytes]], path: str, kinds: Collection[str]) -> list[str]:
    """Return `Set-Cookie` values that delete large cookies of other servers on this host, if all are very large.

    A page on another port can set so many that each request here is slow. Later requests delete what is left.

    Args:
        headers: The request's headers.
        path: The request's path. Cookies of it and of the paths above it are sent along.
        kinds: The session cookies to keep (`is_session_cookie`).
    """
    cookies = [
        part.strip() for key, value in headers if key == b"cookie" for part in value.decode("latin-1").split(";")
    ]
    if sum(map(len, cookies)) <= _MOST_BYTES:
        return []
    large = sorted((cookie for cookie in cookies if len(cookie) > _LARGE_BYTES), key=len, reverse=True)
    names = [name for cookie in large if not is_session_cookie(name := cookie.partition("=")[0].strip(), kinds)]
    ends = [index for index, char in enumerate(path) if char == "/"][:_MOST_DEEP]
    paths = dict.fromkeys(["/", *(path[: end + 1] for end in ends), *(path[:end] for end in ends[1:]), path[:200]])
    return [f"{name}=; Max-Age=0; Path={quote(where)}" for name in names[:_AT_ONCE] for where in paths]
