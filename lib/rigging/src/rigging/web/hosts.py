"""Admission of requests by host and origin. Pure.

A page of another site can make this machine's browser send requests here. A foreign name in `Host` (DNS rebinding) or
the page's `Origin` reveals them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from typing import Final

_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def host_name(header: str) -> str:
    """Return the name in a `Host` header, in lower case and without the port; "" if it is invalid."""
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
    """Return why a request's `Host` is refused; None if it is allowed.

    Args:
        header: The header; "" if it is missing.
        allowed: Allowed names besides those of loopback, in lower case, without ports. `*.x` allows each name of one
            more label.
        any_address: Whether to allow any numeric address, which DNS cannot redirect.
    """
    name = host_name(header)
    if name in _LOOPBACK_NAMES or (name and name in allowed):
        return None
    label, _, domain = name.partition(".")
    if f"*.{domain}" in allowed and is_label(label):
        return None
    if any_address and _is_address(name):
        return None
    return f"host {header[:100]!r} is not a name of this server; use localhost or a configured name"


def is_label(text: str) -> bool:
    """Return whether a text is one label of a host name, in lower case."""
    return _LABEL.fullmatch(text) is not None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def origin_refusal(method: str, headers: Mapping[str, str], *, websocket: bool = False) -> str | None:
    """Return why a request is refused as another site's; None if it is allowed.

    Args:
        method: The HTTP method.
        headers: Lower-case names and values. Relevant are `host`, `origin`, `sec-fetch-site` and `sec-fetch-mode`.
        websocket: Whether it opens a WebSocket, which browsers allow from every site.
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
