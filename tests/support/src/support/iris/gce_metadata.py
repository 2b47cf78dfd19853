"""A fake of Compute Engine's metadata server, which answers only whether the machine is preempted."""

import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

PATH: Final = "/computeMetadata/v1/instance/preempted"
_FLAVOR: Final = "Metadata-Flavor"
_WAIT_S: Final = 30.0


class MetadataServer:
    """A server on loopback; a context manager. `refused` are requests that the real server would refuse."""

    def __init__(self, flavor: str = "Google") -> None:
        self.flavor = flavor
        self.refused: list[str] = []
        self._changed = threading.Condition()
        self._preempted = False
        self._breaks = 0
        self._watchers = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "MetadataServer":
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.break_off()
        self._server.shutdown()
        self._server.server_close()

    def preempt(self) -> None:
        """Report from now on that the machine is preempted, and notify waiting requests."""
        with self._changed:
            self._preempted = True
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

    def answer(self, etag: str | None) -> tuple[str, str] | None:
        """Return the value and its tag when the tag differs from `etag`; None breaks the connection."""
        with self._changed:
            if etag is not None and etag == self._etag:
                self._watchers += 1
                breaks = self._breaks
                self._changed.notify_all()
                self._changed.wait_for(lambda: etag != self._etag or self._breaks > breaks)
                if self._breaks > breaks:
                    return None
            return ("TRUE" if self._preempted else "FALSE"), self._etag

    @property
    def _etag(self) -> str:
        return f"5c{int(self._preempted)}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(url.query).items()}
                if self.headers.get(_FLAVOR) != "Google" or url.path != PATH:
                    server.refused.append(self.path)
                    self.send_error(HTTPStatus.FORBIDDEN)
                    return
                answer = server.answer(query.get("last_etag") if query.get("wait_for_change") == "true" else None)
                if answer is None:
                    self.close_connection = True
                    return
                value, etag = answer
                self.send_response(HTTPStatus.OK)
                self.send_header(_FLAVOR, server.flavor)
                self.send_header("ETag", etag)
                self.send_header("Content-Length", str(len(value)))
                self.end_headers()
                self.wfile.write(value.encode())

            def log_message(self, *args: Any) -> None:
                pass

        return Handler
