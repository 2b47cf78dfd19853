"""Reading the session's cookie out of a request. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def only_cookie(headers: Iterable[tuple[bytes, bytes]], name: str) -> str:
    """Return the value of a cookie; "" when there is none, or several of that name.

    A page at another port of this host may set one for a longer path, which would be taken before the true one.

    Args:
        headers: Of the request.
        name: The cookie's.
    """
    found = [
        part.partition("=")[2].strip()
        for key, value in headers
        if key == b"cookie"
        for part in value.decode("latin-1").split(";")
        if part.partition("=")[0].strip() == name
    ]
    # It is quoted where it has a "=" in it.
    return found[0].strip('"') if len(found) == 1 else ""
