"""Which requests are let in by what they say of their host and origin. Pure.

A page of another site can make this machine's browser send requests here. Two things give them away: the `Host` that
the browser believes to talk to (another name that was made to point here: DNS rebinding), and the `Origin` of the page.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from typing import Final

_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def host_name(header: str) -> str:
    """Return the name in a `Host` header, in lower case, without the port; "" when it is no host."""
    host = header.strip().lower()
    if host.startswith("["):
        name, bracket, port = host.partition("]")
        name += bracket
        port = port.removeprefix(":")
    else:
        name, _, port = host.partition(":")
    is_plain = all(char.isalnum() or char in "-._[]:" for char in name)
    return name if is_plain and (not port or port.isdigit()) else ""


def host_refusal(header: str, allowed: Collection[str], *, any_address: bool) -> str | None:
    """Return why a request's `Host` is refused; None when it is not.

    Args:
        header: The header; "" when there is none.
        allowed: Names beyond those of loopback, in lower case, without ports.
        any_address: Whether any numeric address will do: no DNS can point one elsewhere.
    """
    name = host_name(header)
    if name in _LOOPBACK_NAMES or (name and name in allowed):
        return None
    if any_address and _is_address(name):
        return None
    return (
        f"host {header[:100]!r} is none of this server's names; it may be reached as localhost, or by a configured name"
    )


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def origin_refusal(method: str, headers: Mapping[str, str], *, websocket: bool = False) -> str | None:
    """Return why a request is refused as one of another site's page; None when it is not.

    Args:
        method: The HTTP method.
        headers: Lower-case names and values: `host`, `origin`, `sec-fetch-site`, `sec-fetch-mode` count.
        websocket: Whether it opens a WebSocket, which browsers let every site do.
    """
    origin = headers.get("origin")
    changes = websocket or method not in SAFE_METHODS
    if origin is not None and origin.partition("://")[2].lower() != headers.get("host", "").strip().lower():
        return f"origin {origin[:100]!r} is not this server's"
    site = headers.get("sec-fetch-site")
    if site in ("cross-site", "same-site") and (changes or headers.get("sec-fetch-mode") != "navigate"):
        return "the request comes from a page of another site"
    if changes and origin is None and site != "same-origin":
        return "a request that changes something must name its origin"
    return None
