import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rigging.filesystem.region import forget_metadata
from support.rigging.clock import FakeClock
from support.rigging.server_fixtures import *  # noqa: F403

_HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What talks to S3 needs moto's process, and takes several times as long as the same on GCS."""
    for item in items:
        if item.path.is_relative_to(_HERE) and _is_on_s3(item):
            item.add_marker(pytest.mark.process)


def _is_on_s3(item: pytest.Item) -> bool:
    fixtures, call = set(getattr(item, "fixturenames", ())), getattr(item, "callspec", None)
    if "s3_server" in fixtures or call is None or not fixtures & {"make_regions", "path", "server"}:
        return "s3_server" in fixtures
    return any("s3" in (value if isinstance(value, tuple) else (value,)) for value in call.params.values())


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(autouse=True)
def outside_any_cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tests see neither this machine's prefix nor its region."""
    monkeypatch.delenv("MARIN_PREFIX", raising=False)
    monkeypatch.delenv("GCE_METADATA_HOST", raising=False)
    monkeypatch.setattr("rigging.filesystem.region.may_be_gcp", lambda environ: bool(environ.get("GCE_METADATA_HOST")))
    forget_metadata()
    yield
    forget_metadata()


class MetadataServer:
    """Answers over real HTTP as GCP's metadata server does, or as a test says, and notes what was asked."""

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
                for name, value in {**outer.headers, "Content-Length": str(len(outer.body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(outer.body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.http.server_port}"


@pytest.fixture
def metadata_server() -> Iterator[MetadataServer]:
    server = MetadataServer()
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.http.shutdown()
    thread.join()
    server.http.server_close()
