"""Reading sessions' cookies out of a request. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable


def cookies_named(headers: Iterable[tuple[bytes, bytes]], name: str) -> list[str]:
    """Return the values of a cookie: several, where pages at other ports of this host have set it for longer paths.

    Args:
        headers: Of the request.
        name: The cookie's.
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
    """True if a cookie is a session's: a browser sends those of all servers at a host to each of its ports.

    Args:
        name: The cookie's.
        kinds: What names of such cookies are, or begin with before a "-".
    """
    return any(name == kind or name.startswith(f"{kind}-") for kind in kinds)
