import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iris.rpc.auth import PrincipalKind
from iris.rpc.protocol import call_metadata
from support.iris.async_tests import pytest_pyfunc_call  # noqa: F401
from support.iris.controller import ControllerStubs, RunningController
from support.iris.controller import running_controller as start_controller
from support.iris.users import User
from support.iris.worker import ScriptedWorker


@pytest.fixture
def loop() -> asyncio.AbstractEventLoop:
    """The loop of a coroutine test. Files whose tests move its clock override this fixture."""
    return asyncio.new_event_loop()


@pytest.fixture
def runner(loop: asyncio.AbstractEventLoop) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        yield runner


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[RunningController]:
    with start_controller(tmp_path / "state") as running:
        yield running


Connect = Callable[..., User]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Return a function that makes clients of a controller: `connect(controller)` for a user; pass kind and name, or a
    token, for others."""
    opened: list[ControllerStubs] = []

    def open_client(
        controller: RunningController,
        kind: PrincipalKind = PrincipalKind.USER,
        name: str = "ann",
        attempt_id: str | None = None,
        token: str = "",
    ) -> User:
        shown = token or controller.token(kind, name)
        stubs = ControllerStubs(controller.address, call_metadata(shown, attempt_id))
        opened.append(stubs)
        return User(stubs)

    yield open_client
    for stubs in opened:
        stubs.close()


@pytest.fixture
def user(controller: RunningController, connect: Connect) -> User:
    return connect(controller)


@pytest.fixture
def admin(controller: RunningController, connect: Connect) -> User:
    return connect(controller, PrincipalKind.ADMIN, "root")


@pytest.fixture
def worker(controller: RunningController) -> Iterator[ScriptedWorker]:
    with ScriptedWorker(controller.address, controller.worker_token("w1")) as scripted:
        yield scripted
