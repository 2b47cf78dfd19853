"""The metadata server of a machine."""

import json
import socket
import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

_ROOT: Final = "/computeMetadata/v1/"
_GUEST: Final = "instance/guest-attributes/"
_FLAVOR: Final = "Metadata-Flavor"
_WAIT_S: Final = 30.0
NO_MAINTENANCE: Final = '{ "error": "no notifications have been received yet, try again later" }'
MAINTENANCE: Final = json.dumps(
    {
        "can_reschedule": "true",
        "latest_window_start_time": "2026-12-01T19:00:01Z",
        "maintenance_reasons": ["PLANNED_UPDATE"],
        "maintenance_status": "PENDING",
        "type": "SCHEDULED",
        "window_end_time": "2026-12-01T21:00:01Z",
        "window_start_time": "2026-12-01T19:00:01Z",
    }
)
"""An `instance/upcoming-maintenance`, as Google documents it."""


def serve(listening: socket.socket, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    """Return a server that answers on a socket, in a thread of its own."""
    server = ThreadingHTTPServer(listening.getsockname(), handler, bind_and_activate=False)
    server.socket.close()
    server.socket, server.daemon_threads = listening, True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return server


class MetadataServer:
    """A server on loopback, from the first use of `address` to `close`; a context manager.

    Args:
        identity: Further values, by path below /computeMetadata/v1/: "instance/name".
        attributes: The machine's metadata: "instance/attributes/KEY".
        guest: Guest attributes, by namespace and key; writable if the attribute `enable-guest-attributes` is TRUE.
        flavor: The header with which it says that it is one.

    `refused` are requests that the real server would refuse. `listen` returns its socket, on loopback or elsewhere.
    """

    def __init__(
        self,
        identity: Mapping[str, str] | None = None,
        attributes: Mapping[str, str] | None = None,
        guest: dict[tuple[str, str], str] | None = None,
        flavor: str = "Google",
    ) -> None:
        self.flavor = flavor
        self.refused: list[str] = []
        self.guest = {} if guest is None else guest
        self.listen: Callable[[], socket.socket] = lambda: socket.create_server(("127.0.0.1", 0))
        self._attributes = attributes or {}
        self._values = {
            "instance/preempted": "FALSE",
            "instance/maintenance-event": "NONE",
            "instance/upcoming-maintenance": NO_MAINTENANCE,
            "instance/service-accounts/default/token": json.dumps(
                {"access_token": "ya29.of-a-machine", "expires_in": 3599, "token_type": "Bearer"}
            ),
            "instance/service-accounts/default/": json.dumps(
                {"aliases": ["default"], "email": "vm@p.iam.gserviceaccount.com", "scopes": ["cloud-platform"]}
            ),
            "universe/universe-domain": "googleapis.com",
            **(identity or {}),
        }
        self._changed = threading.Condition()
        self._changes: dict[str, int] = {}
        self._breaks = 0
        self._watchers = 0

    @cached_property
    def address(self) -> str:
        """Return "host:port"; the server starts."""
        self._server = serve(self.listen(), self._handler())
        return "{}:{}".format(*self._server.server_address[:2])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop; waiting requests break off."""
        self.break_off()
        if "address" in self.__dict__:
            self._server.shutdown()
            self._server.server_close()

    def preempt(self) -> None:
        """Report from now on that the machine is preempted, and notify waiting requests."""
        self.set("instance/preempted", "TRUE")

    def set(self, path: str, value: str) -> None:
        """Change a value, and notify waiting requests: ("instance/upcoming-maintenance", MAINTENANCE)."""
        with self._changed:
            if self._values.get(path) != value:
                self._values[path] = value
                self._changes[path] = self._changes.get(path, 0) + 1
                self._changed.notify_all()

    def break_off(self) -> None:
        """Close the connections of waiting requests."""
        with self._changed:
            self._breaks += 1
            self._changed.notify_all()

    def wait_for_watchers(self, count: int) -> None:
        """Wait until `count` requests have waited for a change in total."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._watchers >= count, _WAIT_S):
                raise TimeoutError(f"{self._watchers} of {count} waited for a change within {_WAIT_S:g} s")

    def wait_for_guest(self, space: str, key: str, value: str) -> None:
        """Wait until the machine has stored a guest attribute."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.guest.get((space, key)) == value, _WAIT_S):
                raise TimeoutError(f"{space}/{key} is not {value!r} within {_WAIT_S:g} s: {self.guest}")

    def get(self, path: str, query: Mapping[str, str]) -> tuple[HTTPStatus, str, str] | None:
        """Return status, value and tag of a path, when the tag is none that the query knows; None breaks off."""
        with self._changed:
            last = query.get("last_etag", "0")
            if query.get("wait_for_change") == "true" and last in ("0", self._tag(path)):
                known = self._tag(path)
                self._watchers += 1
                breaks = self._breaks
                self._changed.notify_all()
                patience = float(query["timeout_sec"]) if "timeout_sec" in query else None
                self._changed.wait_for(lambda: known != self._tag(path) or self._breaks > breaks, patience)
                if self._breaks > breaks:
                    return None
            value = self._value(path)
            if value is None:
                return HTTPStatus.NOT_FOUND, "", "0"
            nothing = value == NO_MAINTENANCE  # Google does not document the status; its words are those of a 503
            return HTTPStatus.SERVICE_UNAVAILABLE if nothing else HTTPStatus.OK, value, self._tag(path)

    def put(self, path: str, value: str) -> HTTPStatus:
        """Store a guest attribute."""
        space, _, key = path.removeprefix(_GUEST).partition("/")
        if not path.startswith(_GUEST) or not key or self._attributes.get("enable-guest-attributes") != "TRUE":
            return HTTPStatus.FORBIDDEN
        with self._changed:
            self.guest[space, key] = value
            self._changed.notify_all()
        return HTTPStatus.OK

    def _value(self, path: str) -> str | None:
        if path.startswith("instance/attributes/"):
            return self._attributes.get(path.removeprefix("instance/attributes/"), self._values.get(path))
        if path.startswith(_GUEST):
            space, _, key = path.removeprefix(_GUEST).partition("/")
            return self.guest.get((space, key))
        return self._values.get(path)

    def _tag(self, path: str) -> str:
        return f"5c{self._changes.get(path, 0)}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                url = urlsplit(self.path)
                if url.path == "/":  # google-auth looks whether there is one
                    self._send(HTTPStatus.OK, "computeMetadata/\n", "0")
                elif self.headers.get(_FLAVOR) != "Google" or not url.path.startswith(_ROOT):
                    self._refuse(HTTPStatus.FORBIDDEN)
                else:
                    query = {name: values[0] for name, values in parse_qs(url.query).items()}
                    answer = server.get(url.path.removeprefix(_ROOT), query)
                    if answer is None:
                        self.close_connection = True
                    elif answer[0] is HTTPStatus.NOT_FOUND and "attributes/" not in url.path:
                        self._refuse(HTTPStatus.NOT_FOUND)
                    else:
                        self._send(*answer)

            def do_PUT(self) -> None:
                value = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                status = server.put(urlsplit(self.path).path.removeprefix(_ROOT), value)
                if status is HTTPStatus.OK and self.headers.get(_FLAVOR) == "Google":
                    self._send(status, "", "0")
                else:
                    self._refuse(HTTPStatus.FORBIDDEN)

            def _refuse(self, status: HTTPStatus) -> None:
                server.refused.append(self.path)
                self.send_error(status)

            def _send(self, status: HTTPStatus, value: str, tag: str) -> None:
                self.send_response(status)
                self.send_header(_FLAVOR, server.flavor)
                self.send_header("ETag", tag)
                self.send_header("Content-Type", "application/json" if value[:1] == "{" else "application/text")
                self.send_header("Content-Length", str(len(value.encode())))
                self.end_headers()
                self.wfile.write(value.encode())

            def log_message(self, *args: Any) -> None:
                pass

        return Handler
