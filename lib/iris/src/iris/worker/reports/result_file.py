"""The packed return value that a callable leaves in a file for its worker: see `callable_main.write_result`."""

import asyncio
import hashlib
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Final

from iris.worker.host.removal import remove_tree
from iris.worker.reports.task_file import read_task_file
from iris.worker.types import NO_RESULT, TaskResult
from rigging.errors import MarinError
from rigging.timing import ExponentialBackoff

logger = logging.getLogger(__name__)

INLINE_BYTES: Final = 4096
"""Larger ones are sent as a blob, because thousands of ends share a message."""
MOST_BYTES: Final = 16 * 1024 * 1024 + 64
"""A pickle of 16 MiB with the version before it."""
_PATIENCE_S: Final = 120.0

SendBlob = Callable[[str, bytes], Awaitable[None]]
"""Sends bytes with their digest (SHA-256 hex) to the controller. Raises MarinError."""


def problem(reason: object) -> TaskResult:
    """Return a placeholder for a value that is not available."""
    return TaskResult(b"! " + " ".join(str(reason).split()).encode(errors="replace")[: INLINE_BYTES - 3] + b"\n")


def read_small(path: str, owner: int = 0) -> TaskResult | None:
    """Return the value in a file, `NO_RESULT` if it is empty or missing; None if it must be sent as a blob.

    `owner` as in `read_task_file`.
    """
    try:
        found = read_task_file(path, INLINE_BYTES + 1, owner)
    except FileNotFoundError:
        return NO_RESULT
    except OSError as error:
        return problem(f"its worker cannot read it: {error}")
    return TaskResult(found) if len(found) <= INLINE_BYTES else None


def remove(path: str) -> None:
    """Remove a task's file or whatever the task put in its place."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError:
        remove_tree(path)


async def send_large(path: str, send: SendBlob | None, patience_s: float = _PATIENCE_S, owner: int = 0) -> TaskResult:
    """Send the value in a file as a blob, retrying while the controller is away; return the result to report.

    Args:
        path: The file.
        send: Sends it; None if nothing can be sent.
        patience_s: How long to retry, in seconds.
        owner: As in `read_task_file`.
    """
    if send is None:
        return problem("its worker sends no large values")
    try:
        data, digest = await asyncio.to_thread(_read, path, owner)
    except (OSError, ValueError) as error:
        return problem(f"its worker cannot read it: {error}")
    backoff = ExponentialBackoff(initial=0.1, maximum=5.0, factor=2.0, jitter=0.2)
    last: MarinError | None = None
    try:
        async with asyncio.timeout(patience_s):
            # Only this loop's task may wait, so rigging's own retries, which sleep, cannot be used.
            while True:
                try:
                    await send(digest, data)
                except MarinError as error:
                    if not error.retryable:
                        return problem(f"its worker could not send it: {error}")
                    last = error
                    await asyncio.sleep(backoff.next_interval())
                else:
                    return TaskResult(digest=digest)
    except TimeoutError:
        logger.warning("a return value of %d bytes could not be sent for %g s: %s", len(data), patience_s, last)
        return problem(f"its worker could not send it for {patience_s:g} s: {last}")


def _read(path: str, owner: int) -> tuple[bytes, str]:
    data = read_task_file(path, MOST_BYTES + 1, owner)
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    return data, hashlib.sha256(data).hexdigest()
