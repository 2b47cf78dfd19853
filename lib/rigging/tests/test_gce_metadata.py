"""One question to a metadata server, and what is no answer of one."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rigging.gce_metadata import Metadata, ask_metadata, metadata_host


class Server:
    """Answers as the test says, and notes what was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.headers = {"Metadata-Flavor": "Google", "ETag": "e1"}
        self.body = b" projects/1/zones/us-central2-b \n"
        self.asked: list[tuple[str, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append((self.path, self.headers["Metadata-Flavor"]))
                self.send_response(outer.status)
                for name, value in outer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(outer.body)))
                self.end_headers()
                self.wfile.write(outer.body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def test_the_value_and_the_tag_of_an_answer(server: Server) -> None:
    assert ask_metadata(server.host, "zone?x=1", 20) == Metadata("projects/1/zones/us-central2-b", "e1")
    assert server.asked == [("/computeMetadata/v1/instance/zone?x=1", "Google")]
    del server.headers["ETag"]
    assert ask_metadata(server.host, "zone", 20).etag == "0"


def test_what_is_too_long_is_cut(server: Server) -> None:
    server.body = b"x" * 5000
    assert ask_metadata(server.host, "zone", 20).value == "x" * 4096


@pytest.mark.parametrize(
    ("status", "flavor"), [(200, "Proxy"), (200, ""), (404, "Google"), (500, "Proxy"), (204, "Google")]
)
def test_what_does_not_answer_as_one_is_none(server: Server, status: int, flavor: str) -> None:
    server.status, server.headers = status, {"Metadata-Flavor": flavor} if flavor else {}
    with pytest.raises(OSError, match=f"{server.host} answered {status}, not as a metadata server does"):
        ask_metadata(server.host, "zone", 20)


def test_it_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", "there:80")
    assert metadata_host() == "there:80"
    monkeypatch.setenv("GCE_METADATA_HOST", "")
    assert metadata_host() == "metadata.google.internal"


def test_what_speaks_another_protocol_is_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        host = f"127.0.0.1:{listening.getsockname()[1]}"

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"220 mail.example ESMTP\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(OSError, match=f"{host} does not speak HTTP as a metadata server does"):
            ask_metadata(host, "zone", 20)
        thread.join()
