import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rigging.filesystem import (
    REGION_TO_DATA_BUCKET,
    data_bucket,
    marin_region,
    region_from_metadata,
    region_from_prefix,
)
from rigging.filesystem.region import fetch_zone, may_be_gcp
from rigging.gce_metadata import Metadata, ask_metadata

REAL_MAY_BE_GCP = may_be_gcp
Serve = Callable[..., "MetadataServer"]


class MetadataServer:
    """A real HTTP server that answers as GCP's metadata server does."""

    def __init__(self, body: str, *, status: int = 200, flavor: str | None = "Google") -> None:
        self.requests: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.append(self.path)
                assert self.headers["Metadata-Flavor"] == "Google"
                self.send_response(status)
                if flavor:
                    self.send_header("Metadata-Flavor", flavor)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[MetadataServer] = []

    def start(body: str, **kwargs: object) -> MetadataServer:
        servers.append(MetadataServer(body, **kwargs))  # type: ignore[arg-type]
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.mark.parametrize(
    ("prefix", "region"),
    [
        ("gs://marin-us-central2", "us-central2"),
        ("gs://marin-us-central2/scratch/me", "us-central2"),
        ("gs://marin-eu-west4/x", "europe-west4"),
        ("gs://marin-asia-northeast1/", "asia-northeast1"),
        ("gs://marin-tpu-v4/x", None),
        ("gs://marin-us-central2-backup/x", None),
        ("gs://other/marin-us-central2", None),
        ("s3://marin-us-central2", None),
        ("/tmp/marin", None),
        ("", None),
        (None, None),
    ],
)
def test_region_from_prefix(prefix: str | None, region: str | None) -> None:
    assert region_from_prefix(prefix) == region


def test_buckets_and_regions_are_inverse() -> None:
    for region in [*REGION_TO_DATA_BUCKET, "asia-southeast1", "europe-west1"]:
        assert region_from_prefix(f"gs://{data_bucket(region)}") == region


def test_metadata_gives_the_region_and_is_asked_once(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve("projects/12345/zones/us-central2-b")
    monkeypatch.setenv("GCE_METADATA_HOST", server.host)
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: region_from_metadata(), range(8))) == {"us-central2"}
    assert server.requests == ["/computeMetadata/v1/instance/zone"]


def test_metadata_wins_over_the_prefix(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_PREFIX", "gs://marin-us-east1")
    assert marin_region() == "us-east1"
    monkeypatch.setenv("GCE_METADATA_HOST", serve("projects/1/zones/europe-west4-a").host)
    assert marin_region() == "us-east1", "a laptop's answer was kept for the process"


def test_metadata_server_decides_when_it_answers(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_PREFIX", "gs://marin-us-east1")
    monkeypatch.setenv("GCE_METADATA_HOST", serve("projects/1/zones/europe-west4-a").host)
    assert marin_region() == "europe-west4"


def test_a_server_that_is_no_metadata_server_gives_no_region(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve("<html>captive portal</html>", flavor=None)
    with pytest.raises(OSError, match="not as a metadata server"):
        fetch_zone(server.host)
    monkeypatch.setenv("GCE_METADATA_HOST", server.host)
    assert region_from_metadata() is None
    assert "region unknown" in caplog.text


def test_only_machines_that_may_be_in_gcp_ask(tmp_path: Path) -> None:
    google, other = tmp_path / "google", tmp_path / "other"
    google.write_text("Google Compute Engine\n")
    other.write_text("ThinkPad\n")
    assert REAL_MAY_BE_GCP({}, str(google))
    assert not REAL_MAY_BE_GCP({}, str(other))
    assert not REAL_MAY_BE_GCP({}, str(tmp_path / "missing"))
    assert REAL_MAY_BE_GCP({"GCE_METADATA_HOST": "localhost:1"}, str(other))


def test_a_silent_server_costs_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{silent.getsockname()[1]}")
        patience: list[float] = []

        def ask(host: str, question: str, timeout: float) -> Metadata:
            patience.append(timeout)
            return ask_metadata(host, question, timeout)

        monkeypatch.setattr("rigging.filesystem.region.ask_metadata", ask)
        assert region_from_metadata() is None
        assert sum(patience) <= 1
        tries = len(patience)
        assert region_from_metadata() is None
        assert len(patience) == tries
