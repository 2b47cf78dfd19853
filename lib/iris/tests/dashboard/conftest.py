from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from iris.controller.config.controller_config import Address
from iris.dashboard.application import make_application
from iris.dashboard.cluster_client import viewer_of
from iris.dashboard.settings import Settings
from iris.rpc.auth import PrincipalKind
from iris.rpc.protocol import call_metadata
from support.iris.controller import ControllerStubs, RunningController, running_controller
from support.iris.users import User
from support.iris.worker import ScriptedWorker
from support.rigging.chromium import browser, page  # noqa: F401

BASE = "http://127.0.0.1:8000"


def settings_for(controller: RunningController, address: Address | None = None) -> Settings:
    return Settings(str(address or controller.address), controller.secret.hex(), "00" * 32, cluster_name="test")


class Pages:
    """The application beside a real controller, and browsers of several users."""

    def __init__(self, controller: RunningController) -> None:
        self.running: TestClient
        self.app, self.live = make_application(settings_for(controller), others=())

    def browser(self, user: str, *, is_admin: bool = False, may_write: bool = False, token_id: str = "") -> TestClient:
        """Return the browser of a user who has opened a login link."""
        client = self.running
        client.cookies.clear()
        viewer = viewer_of(user, is_admin=is_admin, may_write=may_write, token_id=token_id)
        link = self.app.state.web.login_path(viewer)
        assert client.get(link).status_code == 200
        return client


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[RunningController]:
    # Scripted workers say nothing by themselves, and a browser on a busy machine takes more than a minute for a test.
    with running_controller(tmp_path / "state", worker_timeout_s=3600) as running:
        yield running


@pytest.fixture
def worker(controller: RunningController) -> Iterator[ScriptedWorker]:
    with ScriptedWorker(controller.address, controller.worker_token("w1")) as scripted:
        yield scripted


@pytest.fixture
def admin(controller: RunningController) -> Iterator[User]:
    stubs = ControllerStubs(controller.address, call_metadata(controller.token(PrincipalKind.ADMIN, "root")))
    yield User(stubs)
    stubs.close()


@pytest.fixture
def pages(controller: RunningController) -> Iterator[Pages]:
    found = Pages(controller)
    # One event loop for all requests: the channel to the controller belongs to it.
    with TestClient(found.app, base_url=BASE) as running:
        found.running = running
        yield found
