"""The experiment pages over gs:// and s3:// prefixes, against servers that speak those protocols."""

import socket
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from starlette.testclient import TestClient

from marin.browser.command import browser_app
from marin.browser.confined import Confined
from marin.browser.index import RunIndex
from marin.browser.site import make_site
from rigging.filesystem import url_to_fs
from rigging.web.login import Viewer
from rigging.web.serving import Bound
from support.marin.buckets import bucket_root
from support.marin.sample_runs import sample_root
from support.rigging.clock import FakeClock

pytestmark = pytest.mark.process


@pytest.fixture(params=[pytest.param("gs", marks=pytest.mark.soak), "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    (tmp_path / "local").mkdir()
    sample_root(tmp_path / "local", shards=2)
    with bucket_root(request.param, "marin-browser-tests") as bucket:
        place = f"{bucket}/{tmp_path.name}"
        fs, remote = url_to_fs(place)
        for file in (tmp_path / "local").rglob("*"):
            if file.is_file():
                # Paths in what was recorded are those of the bucket.
                content = file.read_bytes().replace(f"{tmp_path}/local".encode(), place.encode())
                fs.pipe_file(f"{remote}/{file.relative_to(tmp_path / 'local')}", content)
        yield place


def test_a_bucket_is_shown_like_a_disk(root: str) -> None:
    app = browser_app(make_site(root, f"{root}/experiments"), Bound(socket.socket(), "127.0.0.1", 1), None)
    client = TestClient(app, "http://localhost", raise_server_exceptions=False)
    client.get(app.state.web.login_path(Viewer("ada")))
    tiny = "checkpoints/tiny-aaaaaa"
    for page, query, shown in (
        ("runs", {}, "grace"),
        ("run", {"run": "pretrain-0a1b2c"}, "path=checkpoints%2Ftiny-aaaaaa"),
        ("step", {"path": tiny, "run": "pretrain-0a1b2c"}, "step 299: loss"),
        ("step", {"path": tiny}, "samples.parquet"),
        ("files", {"path": f"{tiny}/samples.parquet"}, "row group 1 of 3"),
        ("files", {"path": f"{tiny}/samples.jsonl.zst"}, "Document 99"),
        ("files", {"path": f"{tiny}/weights.npy"}, "64 × 128"),
        ("files", {"path": f"{tiny}/shards"}, "part-00003.txt"),
    ):
        answer = client.get(f"/experiments/{page}", params=query)
        assert answer.status_code == 200, answer.text
        assert shown in answer.text
    for path in ("../other/file", "a/../../other", "none"):
        assert client.get("/experiments/files", params={"path": path}).status_code in (400, 404)


def test_a_run_that_comes_to_a_bucket_is_listed_and_one_that_goes_is_not(root: str) -> None:
    clock = FakeClock(1000.0)
    index = RunIndex(Confined(f"{root}/experiments"), now=clock.now)
    before = [run.id for run in index.runs()]
    _, remote = url_to_fs(f"{root}/experiments/new-123abc-20991231T235959.000000Z-7.events.jsonl")
    # Another process writes it: this one's storage library knows nothing of it.
    others = fsspec.filesystem(root.partition(":")[0], skip_instance_cache=True)
    others.pipe_file(remote, b"{}\n")
    clock.advance(60)
    assert [run.id for run in index.runs()] == ["new-123abc-20991231T235959.000000Z-7", *before]
    others.rm_file(remote)
    clock.advance(60)
    assert [run.id for run in index.runs()] == before
