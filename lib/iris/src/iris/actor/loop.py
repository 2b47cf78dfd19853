"""The one event loop of this process for all actors and their callers, in a thread of its own."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}


def actor_loop() -> asyncio.AbstractEventLoop:
    """The loop of this process, started when there is none. A fork has its own."""
    pid = os.getpid()
    loop = _loops.get(pid)
    if loop is not None:
        return loop
    with _lock:
        if pid not in _loops:
            loop = asyncio.new_event_loop()
            loop.set_exception_handler(_report)
            threading.Thread(target=loop.run_forever, name="iris-actor-loop", daemon=True).start()
            _loops[pid] = loop
        return _loops[pid]


def run(work: Coroutine[Any, Any, Result], timeout: float | None = None) -> Result:
    """Run a coroutine in the loop and wait for it; not to be called from the loop itself."""
    return asyncio.run_coroutine_threadsafe(work, actor_loop()).result(timeout)


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # grpc's poller wakes every loop of the process, and all but one find nothing to read.
    if not isinstance(context.get("exception"), BlockingIOError):
        loop.default_exception_handler(context)
