"""A controller by itself in a loop that goes on after it: what it tells, how it ends, and what it leaves there."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from iris.controller.app import Address, ControllerConfig, serve
from iris.controller.storage.disk_space import RESERVE_NAME
from rigging.errors import Conflict
from support.iris.loops import run_in


class NotingLoop(asyncio.SelectorEventLoop):
    """Keeps the timers that were set."""

    def __init__(self) -> None:
        super().__init__()
        self.timers: list[asyncio.TimerHandle] = []

    def call_at(self, *given: Any, **options: Any) -> asyncio.TimerHandle:
        self.timers.append(super().call_at(*given, **options))
        return self.timers[-1]


def test_one_that_was_told_to_stop_leaves_nothing_in_its_loop(tmp_path: Path) -> None:
    told: list[str] = []

    async def main(loop: NotingLoop) -> None:
        stop = asyncio.Event()

        def ready(address: Address) -> None:
            told.append("ready")
            assert address.port
            stop.set()

        config = ControllerConfig(tmp_path, idle_exit_s=3600, disk_reserve_bytes=4096)
        await serve(config, ready, stop, on_leaving=lambda: told.append("leaving"))
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert [
            task
            for task in others
            if "/iris/" in str(getattr(task.get_coro(), "cr_code", "")) and not task.cancelling()
        ] == []
        left = [timer for timer in loop.timers if not timer.cancelled() and timer.when() > loop.time()]
        assert [timer for timer in left if "iris.controller" in str(getattr(timer._callback, "__self__", ""))] == []

    run_in(NotingLoop(), main)
    assert told == ["ready", "leaving"]
    assert (tmp_path / RESERVE_NAME).stat().st_size == 4096


async def test_a_port_that_is_taken_is_named_and_the_state_is_let_go(tmp_path: Path) -> None:
    stop = asyncio.Event()
    first: asyncio.Future[Address] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(ControllerConfig(tmp_path / "one"), first.set_result, stop))
    address = await first
    for _ in range(2):
        with pytest.raises(Conflict, match=f"cannot listen on {address}: port taken, or not a host of this"):
            await serve(ControllerConfig(tmp_path / "two", port=address.port))
    stop.set()
    await serving
    stop.clear()
    again = asyncio.Event()
    serving = asyncio.create_task(serve(ControllerConfig(tmp_path / "two"), lambda _: again.set(), stop))
    await again.wait()
    stop.set()
    await serving
