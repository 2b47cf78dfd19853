import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from iris.worker.testing import FakeController, InProcessWorker

Scenario = Callable[[FakeController, InProcessWorker], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Scenario], None]:
    """Runs an async scenario with a connected worker and its controller, and ends both."""

    async def run(scenario: Scenario) -> None:
        controller = FakeController()
        await controller.start()
        worker = InProcessWorker(tmp_path / "work", controller, dict(os.environ))
        try:
            await controller.until(lambda: controller.hellos)
            await scenario(controller, worker)
        finally:
            await worker.close()
            await controller.stop()

    return lambda scenario: asyncio.run(run(scenario))
