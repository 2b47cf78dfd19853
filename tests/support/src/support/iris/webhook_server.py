"""A real HTTP server that receives webhooks about jobs, with answers from the test."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class Told:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class WebhookServer:
    """A server that records requests. It answers with these codes (0: no answer), then with 200, and redirects to
    `location`."""

    port: int = 0
    answers: list[int] = field(default_factory=list)
    location: str = ""
    told: list[Told] = field(default_factory=list)
    hanging: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?key=hush"


@contextmanager
def webhook_server(server: WebhookServer | None = None) -> Iterator[WebhookServer]:
    """Context manager: run a server on this machine."""
    served = server or WebhookServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            served.told.append(Told(self.path, dict(self.headers.items()), body))
            answer = served.answers.pop(0) if served.answers else 200
            if not answer:
                served.hanging.wait(60)
                return
            self.send_response(answer)
            if served.location:
                self.send_header("Location", served.location)
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", served.port), Handler)
    httpd.daemon_threads = True
    served.port = httpd.server_address[1]
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        served.hanging.set()
        httpd.shutdown()
        httpd.server_close()
