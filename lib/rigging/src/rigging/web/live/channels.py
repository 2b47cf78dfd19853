"""One stream of events for all tabs of a browser, because browsers open six connections to a server at most.

`GET /live` opens a channel. `POST /live/topics` adds and drops topics: addresses of event streams of this application,
which it asks for in the name of the viewer, so that each checks its rights. Events come as `topic` with a JSON list of
the topic's number and text in the wire format of events; `gone` with its number and status tells that a topic ended.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Scope

from rigging.errors import InvalidRequest, MarinError, NotFound
from rigging.web.errors import status_of
from rigging.web.events import HEARTBEAT_SECONDS, encode_event, event_response

_log = logging.getLogger(__name__)
MOST_CHANNELS: Final = 32
"""Open channels of one viewer: each browser has one."""
MOST_TOPICS: Final = 200
"""Topics of one channel: each visible tab has up to three."""
_MOST_BYTES: Final = 1 << 18
_MOST_WAITING: Final = 64
_NEVER: Final = "/live"


class _NotAStream(OSError):
    """The address answers with something else than events."""


@dataclass(slots=True)
class _Channel:
    owner: str
    viewer: str
    pieces: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(_MOST_WAITING))
    topics: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    is_closed: bool = False

    def close(self) -> None:
        """End the stream at its next piece."""
        self.is_closed = True
        if self.pieces.empty():
            self.pieces.put_nowait(b"")


class Channels:
    """The open channels. It belongs to one event loop, in which all methods but `close` are called."""

    def __init__(self) -> None:
        self._channels: dict[str, _Channel] = {}

    def routes(self) -> list[BaseRoute]:
        """Return the routes of channels."""
        return [Route(_NEVER, self._open), Route(f"{_NEVER}/topics", self._change, methods=["POST"])]

    def close(self, owner: str | None = None) -> None:
        """End the channels of a session; None for all, because the server stops."""
        for channel in list(self._channels.values()):
            if owner in (None, channel.owner):
                channel.close()

    async def _open(self, request: Request) -> Response:
        owner, viewer = _owner_of(request)
        if sum(channel.viewer == viewer for channel in self._channels.values()) >= MOST_CHANNELS:
            raise HTTPException(429, f"{MOST_CHANNELS} browsers of yours follow these pages; close one of them")
        id, channel = secrets.token_urlsafe(16), _Channel(owner, viewer)
        self._channels[id] = channel
        return event_response(self._stream(id, channel))

    async def _stream(self, id: str, channel: _Channel) -> AsyncIterator[bytes]:
        try:
            yield encode_event("channel", json.dumps([id, HEARTBEAT_SECONDS]))
            while not channel.is_closed:
                try:
                    found = [await asyncio.wait_for(channel.pieces.get(), HEARTBEAT_SECONDS)]
                except TimeoutError:
                    found = [encode_event("alive", "")]
                while not channel.pieces.empty():
                    found.append(channel.pieces.get_nowait())
                yield b"".join(found)
        finally:
            del self._channels[id]
            for task in channel.topics.values():
                task.cancel()

    async def _change(self, request: Request) -> Response:
        id, added, dropped = await _changes(request)
        channel = self._channels.get(id)
        if channel is None or channel.owner != _owner_of(request)[0]:
            raise NotFound("the channel is closed; open another by GET /live")
        added = [topic for topic in added if topic[0] not in dropped]
        for number in dropped:
            if (task := channel.topics.pop(number, None)) is not None:
                task.cancel()
        if len(channel.topics) + len(added) > MOST_TOPICS:
            raise InvalidRequest(f"{len(added)} more topics: a channel has at most {MOST_TOPICS}; drop others first")
        for number, address, last_id in added:
            if number in channel.topics:
                raise InvalidRequest(f"topic {number} is open; choose another number")
            scope = _scope_of(request, address, last_id)
            task = asyncio.create_task(_follow(request.app.router, channel, number, scope))
            channel.topics[number] = task
        return Response(status_code=204)


async def _follow(router: Any, channel: _Channel, number: int, scope: Scope) -> None:
    """Send what an address streams into the channel until it ends, then its status."""
    status = 200

    async def receive() -> Message:
        return await asyncio.Future()  # this request has no body, and ends by cancellation

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
            if not dict(message["headers"]).get(b"content-type", b"").startswith(b"text/event-stream"):
                raise _NotAStream
        elif message.get("body"):
            text = json.dumps([number, message["body"].decode("utf-8", "replace")])
            await channel.pieces.put(encode_event("topic", text))

    try:
        await router(scope, receive, send)
    except (_NotAStream, ClientDisconnect):
        status = 400 if status == 200 else status
    except HTTPException as error:
        status = error.status_code
    except MarinError as error:
        status = status_of(error) or 500
    except OSError:
        status = 503
    except Exception:
        _log.exception("the stream %s broke off", scope["path"])
        status = 500
    channel.topics.pop(number, None)
    await channel.pieces.put(encode_event("gone", json.dumps([number, status])))


def _owner_of(request: Request) -> tuple[str, str]:
    """Return the session, and the viewer; of a server without login, the viewer's address."""
    session = request.scope.get("rigging.session")
    if session is not None:
        return session.id, session.viewer.name
    return "", request.client.host if request.client is not None else ""


def _scope_of(request: Request, address: str, last_id: str) -> Scope:
    """Return the scope of a GET request of the same viewer."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc or not parts.path.startswith("/") or parts.path.startswith(_NEVER):
        raise InvalidRequest(f"topic {address[:100]!r}: must be the path and query of an event stream of this server")
    headers = [(name, value) for name, value in request.headers.raw if name in (b"host", b"cookie")]
    if last_id:
        headers.append((b"last-event-id", last_id.encode("latin-1", "replace")))
    return {
        **request.scope,
        "method": "GET",
        "path": unquote(parts.path),
        "raw_path": parts.path.encode("utf-8", "replace"),
        "query_string": parts.query.encode("utf-8", "replace"),
        "headers": headers,
        "path_params": {},
        "state": {},
        # Errors come here, not into pages; streams do not wait for the end of this request's connection.
        "starlette.exception_handlers": ({}, {}),
        "asgi": {"version": "3.0", "spec_version": "2.4"},
    }


async def _changes(request: Request) -> tuple[str, list[tuple[int, str, str]], list[int]]:
    """Return a request's channel, the topics to add with number, address and last event, and the numbers to drop."""
    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MOST_BYTES:
                raise InvalidRequest(f"the list of topics is larger than {_MOST_BYTES} bytes; send fewer at once")
    except ClientDisconnect:
        raise InvalidRequest("the connection broke off within the list of topics") from None
    try:
        given = json.loads(body)
        added = [(number, address, last_id) for number, address, last_id in given["add"]]
        dropped = list(given["drop"])
        is_right = isinstance(given["channel"], str) and all(type(number) is int for number in dropped)
        is_right = is_right and all(
            type(number) is int and isinstance(address, str) and isinstance(last_id, str)
            for number, address, last_id in added
        )
    except (ValueError, TypeError, LookupError, RecursionError):
        is_right = False
    if not is_right:
        raise InvalidRequest('expected {"channel": ID, "add": [[NUMBER, ADDRESS, LAST_ID], …], "drop": [NUMBER, …]}')
    return given["channel"], added, dropped
