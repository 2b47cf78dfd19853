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
    """Move tests on S3 to the process tier: they need moto's process, and take several times as long as on GCS."""
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
    """Hide this machine's prefix and region from tests."""
    monkeypatch.delenv("MARIN_PREFIX", raising=False)
    monkeypatch.delenv("GCE_METADATA_HOST", raising=False)
    monkeypatch.setattr("rigging.filesystem.region.may_be_gcp", lambda environ: bool(environ.get("GCE_METADATA_HOST")))
    forget_metadata()
    yield
    forget_metadata()


class MetadataServer:
    """A fake of GCP's metadata server over real HTTP, which tests control. It records requests."""

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
