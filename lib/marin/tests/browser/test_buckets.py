"""The experiment pages over gs:// and s3:// prefixes, against servers that speak those protocols."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest
from starlette.testclient import TestClient

from marin.browser.command import browser_app
from marin.browser.confined import Confined
from marin.browser.index import RunIndex
from marin.browser.site import make_site
from marin.testing.sample_runs import sample_root
from rigging.filesystem import url_to_fs
from rigging.testing.clock import FakeClock
from rigging.testing.shared import shared_gcs_server, shared_s3_server
from rigging.web.login import Viewer
from rigging.web.serving import Bound

pytestmark = pytest.mark.e2e


@pytest.fixture(params=[pytest.param("gs", marks=pytest.mark.slow), "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The sample runs in a bucket."""
    bucket = "marin-browser-tests"
    environment: Callable[[], dict[str, str]]
    if request.param == "gs":
        gcs = shared_gcs_server()
        gcs.create_bucket(bucket, "us-central2")
        environment = gcs.environment
    else:
        s3 = shared_s3_server()
        s3.create_bucket(bucket)
        environment = s3.environment
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    place = f"{request.param}://{bucket}/{tmp_path.name}"
    fsspec.filesystem(request.param).clear_instance_cache()
    local = tmp_path / "local"
    local.mkdir()
    sample_root(local, shards=2)
    fs, remote = url_to_fs(place)
    for file in local.rglob("*"):
        if file.is_file():
            # Paths in what was recorded are those of the bucket.
            content = file.read_bytes().replace(str(local).encode(), place.encode())
            fs.pipe_file(f"{remote}/{file.relative_to(local)}", content)
    yield place
    fsspec.filesystem(request.param).clear_instance_cache()


def test_a_bucket_is_shown_like_a_disk(root: str) -> None:
    app = browser_app(make_site(root, f"{root}/experiments"), Bound(socket.socket(), "127.0.0.1", 1), None)
    client = TestClient(app, "http://localhost", raise_server_exceptions=False)
    client.get(app.state.web.login_path(Viewer("ada")))

    def get(page: str, **query: str) -> str:
        answer = client.get(f"/experiments/{page}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.text

    assert "grace" in get("runs")
    run = get("run", run="pretrain-0a1b2c")
    assert "path=checkpoints%2Ftiny-aaaaaa" in run
    step = get("step", path="checkpoints/tiny-aaaaaa", run="pretrain-0a1b2c")
    assert "step 299: loss" in step
    assert "samples.parquet" in step
    assert "row group 1 of 3" in get("files", path="checkpoints/tiny-aaaaaa/samples.parquet")
    assert "Document 99" in get("files", path="checkpoints/tiny-aaaaaa/samples.jsonl.zst")
    assert "64 × 128" in get("files", path="checkpoints/tiny-aaaaaa/weights.npy")
    assert "part-00003.txt" in get("files", path="checkpoints/tiny-aaaaaa/shards")
    for path in ("../other/file", "a/../../other", "none"):
        assert client.get("/experiments/files", params={"path": path}).status_code in (400, 404)


def test_a_run_that_comes_to_a_bucket_is_listed_and_one_that_goes_is_not(root: str) -> None:
    clock = FakeClock(1000.0)
    index = RunIndex(Confined(f"{root}/experiments"), now=clock.now)
    before = [run.id for run in index.runs()]
    _, remote = url_to_fs(f"{root}/experiments/new-123abc-20991231T235959.000000Z-7.events.jsonl")
    # Another process writes it: this one's storage library knows nothing of it.
    fsspec.filesystem(root.partition(":")[0], skip_instance_cache=True).pipe_file(remote, b"{}\n")
    clock.advance(60)
    assert [run.id for run in index.runs()] == ["new-123abc-20991231T235959.000000Z-7", *before]
    fsspec.filesystem(root.partition(":")[0], skip_instance_cache=True).rm_file(remote)
    clock.advance(60)
    assert [run.id for run in index.runs()] == before
