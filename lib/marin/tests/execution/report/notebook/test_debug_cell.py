"""Breakpoints of a notebook in steps: the kernel's own debugger, by which JupyterLab and VS Code debug a cell."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from jupyter_client.manager import AsyncKernelManager

SECONDS = 60.0
Found = TypeVar("Found")
CELL = """\
from marin.execution import ExecutorStep, executor_main


def double(config):
    result = 2 * config
    return result


executor_main(steps=[ExecutorStep(name="double", fn=double, config=4)])
"""
LINE = 6


class Kernel:
    """A kernel and its client."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._number = 0

    async def ask(self, command: str, **arguments: Any) -> Any:
        """Send a request to the kernel's debugger; returns the body of its answer."""
        self._number += 1
        content = {"type": "request", "seq": self._number, "command": command, "arguments": arguments}
        message = self._client.session.msg("debug_request", content)
        self._client.control_channel.send(message)
        while True:
            answer = await self._client.control_channel.get_msg(timeout=SECONDS)
            if answer["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                assert answer["content"]["success"], answer
                return answer["content"].get("body")

    async def published(self, is_it: Callable[[Any], bool]) -> Any:
        """Return the next published message that is it."""
        while True:
            message = await self._client.get_iopub_msg(timeout=SECONDS)
            assert message["msg_type"] != "error", message["content"]
            if is_it(message):
                return message


async def debug_cell(client: Any) -> tuple[str, int, str]:
    kernel = Kernel(client)
    await kernel.ask("initialize", clientID="test", adapterID="test", linesStartAt1=True, columnsStartAt1=True)
    await kernel.ask("attach")
    path = (await kernel.ask("dumpCell", code=CELL))["sourcePath"]
    await kernel.ask("setBreakpoints", source={"path": path}, breakpoints=[{"line": LINE}], sourceModified=False)
    await kernel.ask("configurationDone")
    cell = client.execute(CELL)
    stopped = await kernel.published(lambda message: message["content"].get("event") == "stopped")
    thread = stopped["content"]["body"]["threadId"]
    frame = (await kernel.ask("stackTrace", threadId=thread))["stackFrames"][0]
    value = await kernel.ask("evaluate", expression="result", frameId=frame["id"])
    await kernel.ask("continue", threadId=thread)
    await kernel.published(
        lambda message: (
            message["content"].get("execution_state") == "idle" and message["parent_header"].get("msg_id") == cell
        )
    )
    return frame["name"], frame["line"], value["result"]


FAILING = """\
from marin.execution import ExecutorStep, executor_main


def fail(config):
    raise ValueError(f"no {config}")


executor_main(steps=[ExecutorStep(name="fails", fn=fail, config="cheese")])
"""


async def look_at_a_failure(client: Any) -> str:
    """Return what IPython's debugger prints after a failed run."""
    printed: list[str] = []
    answers = iter(["exceptions 0", "p 'config is ' + config", "q"])

    def note(message: Any) -> None:
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    await client.execute_interactive(FAILING, output_hook=note, timeout=SECONDS)
    await client.execute_interactive(
        "%debug", output_hook=note, stdin_hook=lambda _: client.input(next(answers)), allow_stdin=True, timeout=SECONDS
    )
    return "".join(printed)


async def in_kernel(folder: Path, work: Callable[[Any], Awaitable[Found]]) -> Found:
    own = {name: str(folder / name) for name in ("MARIN_PREFIX", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR")}
    manager = AsyncKernelManager(kernel_name="python3")
    await manager.start_kernel(env={**os.environ, **own}, cwd=str(folder))
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=SECONDS)
        return await work(client)
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)


@pytest.mark.e2e
@pytest.mark.slow  # the debugger traces the imports, too
def test_a_breakpoint_in_a_function_of_a_cell_is_hit(tmp_path: Path) -> None:
    assert asyncio.run(in_kernel(tmp_path, debug_cell)) == ("double", LINE, "8")


@pytest.mark.e2e
@pytest.mark.slow
def test_the_debugger_of_ipython_shows_where_a_step_failed(tmp_path: Path) -> None:
    assert "config is cheese" in asyncio.run(in_kernel(tmp_path, look_at_a_failure))
