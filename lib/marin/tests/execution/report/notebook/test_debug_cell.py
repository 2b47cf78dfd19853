"""IPython's debugger shows where a step failed."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import AsyncKernelManager

SECONDS = 60.0
FAILING = """\
from marin.execution import ExecutorStep, executor_main


def fail(config):
    raise ValueError(f"no {config}")


executor_main(steps=[ExecutorStep(name="fails", fn=fail, config="cheese")])
"""


async def look_at_a_failure(client: Any) -> str:
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


async def in_kernel(folder: Path) -> str:
    own = {name: str(folder / name) for name in ("MARIN_PREFIX", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR")}
    manager = AsyncKernelManager(kernel_name="python3")
    await manager.start_kernel(env={**os.environ, **own}, cwd=str(folder))
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=SECONDS)
        return await look_at_a_failure(client)
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)


@pytest.mark.process
@pytest.mark.soak
def test_the_debugger_of_ipython_shows_where_a_step_failed(tmp_path: Path) -> None:
    assert "config is cheese" in asyncio.run(in_kernel(tmp_path))
