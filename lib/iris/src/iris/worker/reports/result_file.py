"""Reads and sends the packed return value that a callable writes to a file: see `callable_main.write_result`."""

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
"""Larger values are sent as a blob, because thousands of results share a message."""
MOST_BYTES: Final = 16 * 1024 * 1024 + 64
"""16 MiB of pickle, and the preceding version."""
_PATIENCE_S: Final = 120.0

SendBlob = Callable[[str, bytes], Awaitable[None]]
"""Uploads bytes with their digest (SHA-256 hex) to the controller. Raises MarinError."""


def problem(reason: object) -> TaskResult:
    """Return the result for a value that is not available, with the reason."""
    return TaskResult(b"! " + " ".join(str(reason).split()).encode(errors="replace")[: INLINE_BYTES - 3] + b"\n")


def read_small(path: str, owner: int = 0) -> TaskResult | None:
    """Return the value in a file, or `NO_RESULT` if the file is empty or missing, or None if the value needs a blob.

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
    """Remove a task's file, or the directory that the task put in its place."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError:
        remove_tree(path)


async def send_large(path: str, send: SendBlob | None, patience_s: float = _PATIENCE_S, owner: int = 0) -> TaskResult:
    """Send the value in a file as a blob, retrying while the controller is unreachable; return the result to report.

    Args:
        path: The file.
        send: Uploads the blob; None if uploads are not possible.
        patience_s: How long to retry, in seconds.
        owner: As in `read_task_file`.
    """
    if send is None:
        return problem("its worker cannot send large values")
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
        raise ValueError(f"it is larger than {MOST_BYTES} bytes")
    return data, hashlib.sha256(data).hexdigest()
