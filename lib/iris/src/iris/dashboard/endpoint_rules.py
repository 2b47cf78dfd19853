"""Finds the endpoint for a path, checks the viewer's permission, and checks the endpoint's address. Pure.

A task can register any address, and this server connects to that address from the controller's machine. So the address
must be the task's own host, not another host that the controller can reach.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from rigging.errors import Denied, InvalidRequest, NotFound, Unavailable
from rigging.web.proxy.headers import Upstream

BASE: Final = "/proxy"
_DEEPEST: Final = 64
_UNIX: Final = "unix"
"""Address of a worker on the controller's machine."""
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1"})


def is_http(metadata: str) -> bool:
    """Return whether an endpoint's metadata declares HTTP.

    Args:
        metadata: The metadata as JSON.
    """
    found = json.loads(metadata or "{}")
    return isinstance(found, dict) and found.get("protocol") == "http"


def names_in(words: Sequence[str], user: str) -> list[str]:
    """Return the possible endpoint names in a path, the longest first.

    Args:
        words: The decoded parts of the path `/proxy/USER/JOB/.../LEAF/rest`.
        user: The viewer.

    Raises:
        NotFound: The path has another form.
        Denied: The endpoint belongs to another user. Even admins open only their own, because a task's page acts as its
            viewer.
    """
    if not words or f"/{words[0]}" != BASE or len(words) < 4:
        raise NotFound(f"there is no such page; endpoints are at {BASE}/USER/JOB/NAME/")
    names = words[1:_DEEPEST]
    if names[0] != user:
        raise Denied(
            f"an endpoint is opened by the user whose job it is, {names[0][:100]!r}, and you are {user!r}; "
            "that holds for admins, too: a page of a task acts as who looks at it"
        )
    return ["/" + "/".join(names[:length]) for length in range(len(names), 2, -1)]


def chosen(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Mapping[str, Any]:
    """Return the endpoint for a path: the longest name, and of several endpoints with that name the first registered.

    Args:
        rows: Endpoints, with `name`, `metadata`, `attempt_id` and `registered_at_ms`.
        names: The result of `names_in`.

    Raises:
        NotFound: There is no endpoint, or it does not serve HTTP.
    """
    found = [row for row in rows if row["name"] in names]
    if not found:
        raise NotFound(
            f"nothing answers as {names[-1][:200]!r} or below it now; a task that starts again registers its endpoints "
            "anew"
        )
    longest = max(len(row["name"]) for row in found)
    row = min(
        (row for row in found if len(row["name"]) == longest),
        key=lambda row: (row["registered_at_ms"], row["attempt_id"]),
    )
    if not is_http(row["metadata"]):
        raise NotFound(f"{row['name']!r} is no page: its metadata do not say protocol=http")
    return row


def upstream_of(row: Mapping[str, Any], worker: str, own: Collection[str]) -> Upstream:
    """Return the server of an endpoint.

    Args:
        row: The endpoint, with `name`, `address` and `metadata`.
        worker: The address of the attempt's worker, or "unix"; "" if it is not connected.
        own: The addresses of this machine.

    Raises:
        InvalidRequest: The endpoint's address is invalid.
        Unavailable: The worker is not connected.
        Denied: The address is not the worker's.
    """
    address = str(row["address"])
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]").lower()
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        raise InvalidRequest(f"the address of {row['name']!r} is {address[:100]!r}; a page needs HOST:PORT")
    if not worker:
        raise Unavailable(f"the worker of {row['name']!r} is not connected at present; try again")
    host = "127.0.0.1" if host == "localhost" else host
    is_near = worker == _UNIX or worker in _LOOPBACK
    allowed = {*_LOOPBACK, *own} if is_near else {worker}
    if host not in allowed:
        raise Denied(
            f"{row['name']!r} is registered at {host[:100]!r}, but its task runs at "
            f"{'this machine' if is_near else worker}: only that is asked"
        )
    keeps = json.loads(row["metadata"]).get("path") == "whole"
    return Upstream(host, int(port), BASE + str(row["name"]), keeps_prefix=keeps)
