"""Session cookies of a request. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable


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
