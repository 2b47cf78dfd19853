"""Helper processes for work that could block the controller."""

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process


async def start_helper(module: str) -> Process:
    """Start `python -m module` with pipes as its stdin and stdout."""
    return await asyncio.create_subprocess_exec(sys.executable, "-m", module, stdin=PIPE, stdout=PIPE)


async def end_helper(process: Process) -> int:
    """Kill a helper, if it is running, and return its exit status like `Process.returncode`."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    return await process.wait()
