"""A storage root with sample runs, and the application of `marin browser` over it."""

import socket
from dataclasses import dataclass
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from marin.browser.command import browser_app
from marin.browser.follow import Pace
from marin.browser.site import Site, make_site
from rigging.web.login import Viewer
from rigging.web.serving import Bound
from support.marin.recorded_runs import RecordedStorage
from support.marin.sample_runs import sample_root
from support.rigging.chromium import browser, page  # noqa: F401

BASE = "http://127.0.0.1:8765"


@dataclass
class Pages:
    """A browser that is signed in at the pages of a storage root."""

    root: Path
    storage: RecordedStorage
    site: Site
    app: Starlette
    client: TestClient

    def get(self, place: str, /, **query: object) -> str:
        answer = self.client.get(f"/experiments/{place}", params={k: str(v) for k, v in query.items()})
        assert answer.status_code == 200, answer.text
        return answer.text

    def status(self, place: str, /, **query: object) -> int:
        return self.client.get(f"/experiments/{place}", params={k: str(v) for k, v in query.items()}).status_code


def pages_of_root(root: Path) -> Pages:
    site = make_site(str(root), f"{root}/experiments", "/job?name=", Pace(look=0.01, alive=0.2))
    app = browser_app(site, Bound(socket.socket(), "127.0.0.1", 8765), None)
    client = TestClient(app, BASE, raise_server_exceptions=False)
    assert client.get(app.state.web.login_path(Viewer("ada"))).status_code == 200
    return Pages(root, RecordedStorage(root), site, app, client)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """The sample runs, which tests must not change."""
    root = tmp_path_factory.mktemp("prefix")
    sample_root(root, shards=12)
    return pages_of_root(root)


@pytest.fixture
def empty(tmp_path: Path) -> Pages:
    root = tmp_path / "prefix"
    root.mkdir()
    return pages_of_root(root)
