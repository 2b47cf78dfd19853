"""Open connections of this process to actors, so that calls made at its exit still arrive."""

import atexit
import contextlib
import weakref
from typing import Final

from iris.actor.client.caller import Caller
from iris.actor.transport.loop import run
from iris.rpc.forks import in_fork

_FLUSH_S: Final = 5.0

_open_callers: weakref.WeakSet[Caller] = weakref.WeakSet()
"""Clients to flush at the end of the process. Unreferenced clients stay while they have calls to send."""


def keep_open(caller: Caller) -> None:
    """Flush the caller at process exit, unless it is closed earlier."""
    _open_callers.add(caller)


async def close(caller: Caller) -> None:
    """Close a caller's connection after delivering sent calls."""
    _open_callers.discard(caller)
    await caller.close()


@atexit.register
def _hand_over() -> None:
    """Deliver the calls of an exiting process, if their actors can be reached soon."""
    if _open_callers and not in_fork():
        with contextlib.suppress(TimeoutError):
            run(_flush(list(_open_callers)), _FLUSH_S + 1)


async def _flush(callers: list[Caller]) -> None:
    import asyncio

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_FLUSH_S):
            await asyncio.gather(*(caller.flush() for caller in callers))
