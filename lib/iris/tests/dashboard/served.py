"""The pages beside a controller, served to a real browser."""

from __future__ import annotations

import asyncio
import threading

from playwright.sync_api import Page, expect

from iris.dashboard.application import make_application
from iris.dashboard.cluster_client import viewer_of
from iris.rpc.logformat import encode
from rigging.web.serving import WebServer, bind
from support.iris.controller import RunningController
from support.iris.worker import ScriptedWorker

from .conftest import settings_for

T = 1_790_000_000_000


class Served:
    """The pages beside a controller, served; can be stopped and started again at the same port."""

    def __init__(self, controller: RunningController) -> None:
        self.controller = controller
        self.start(0)

    def start(self, port: int) -> None:
        bound = bind(port, strict=bool(port))
        self.url, self.port = bound.url, bound.port
        self.app, live = make_application(settings_for(self.controller), others=())
        self._server = WebServer(self.app, bound, live.broadcaster.close)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.run()), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.stop()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def sign_in(self, page: Page, *, may_write: bool = False) -> None:
        viewer = viewer_of("root", is_admin=True, may_write=may_write)
        page.goto(self.url + self.app.state.web.login_path(viewer))
        page.wait_for_url("**/cluster")

    def goto(self, page: Page, place: str) -> None:
        page.goto(f"{self.url}/{place}")


def write_log(worker: ScriptedWorker, attempt: str, position: int, *lines: str) -> int:
    data = b"".join(encode(False, T + position + i, line.encode()) for i, line in enumerate(lines))
    worker.append_log(attempt, position, data)
    worker.wait_for_log_ack(attempt, position + len(data))
    return position + len(data)


def connected(page: Page) -> None:
    expect(page.locator("body")).to_have_attribute("data-connected", "true")
