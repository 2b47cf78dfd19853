"""Reads filtered lines, and pieces in the remote state, through a separate process."""

import asyncio
import contextlib
import json
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from iris.controller.helper_process import end_helper, start_helper
from iris.controller.logs.search_process import FAILED, FRAME, HAS_ALL, ROUND_ENDED, Task
from iris.controller.logs.store import LogKey
from rigging.errors import InvalidRequest, Unavailable

MOST_AT_ONCE: Final = 16
_LONGEST_FRAME: Final = 8 * 1024 * 1024


@dataclass(slots=True)
class Searchers:
    """The processes that read logs for callers.

    Args:
        remote: The URL of the remote state; empty for none.
        patience_s: A round fails after this long without output.
    """

    root: str
    remote: str = ""
    patience_s: float = 120.0
    most: int = MOST_AT_ONCE
    _running: int = field(default=0, init=False)

    @contextlib.asynccontextmanager
    async def begin(self, task: Task) -> "AsyncGenerator[Searcher]":
        """Context manager: a process for one caller, killed at the end. Raises Unavailable if too many are running."""
        if self._running >= self.most:
            raise Unavailable(f"{self.most} readers of filtered logs are already running; try again")
        self._running += 1
        process = None
        try:
            process = await start_helper("iris.controller.logs.search_process")
            yield Searcher(process, task, self.patience_s)
        finally:
            self._running -= 1
            if process is not None:
                await end_helper(process)


class Searcher:
    """One process that reads logs.

    Attributes:
        has_all: Whether all requested lines were delivered.
    """

    def __init__(self, process: Process, task: Task, patience_s: float) -> None:
        self._process = process
        self._task: Task | None = task
        self._patience_s = patience_s
        self._pattern = task.choice.grep
        self.has_all = False

    async def round(
        self, keys: Sequence[LogKey], positions: Mapping[LogKey, int], last: bool
    ) -> AsyncGenerator[tuple[LogKey, bytes], None]:
        """Yield the records of matching lines of these logs since the last round.

        Args:
            keys: The logs.
            positions: The start offset in each, in bytes.
            last: Whether no round follows.

        Raises:
            InvalidRequest: The search takes too long.
            Unavailable: The process failed, for example because the remote state does not answer.
        """
        assert self._process.stdin is not None  # both are pipes
        assert self._process.stdout is not None
        asked = [(*key, positions.get(key, 0)) for key in keys]
        first = [] if self._task is None else [self._task.to_json()]
        self._task = None
        lines = [*first, json.dumps({"keys": asked, "last": last}), ""]
        with contextlib.suppress(ConnectionError):  # told below
            self._process.stdin.write("\n".join(lines).encode())
            await self._process.stdin.drain()
        while True:
            number, data = await self._frame(self._process.stdout)
            if number == ROUND_ENDED:
                self.has_all = data == HAS_ALL
                return
            if number == FAILED:
                raise Unavailable(f"the logs cannot be read now: {data.decode(errors='replace')}")
            yield keys[number], data

    async def _frame(self, stdout: asyncio.StreamReader) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(self._patience_s):
                number, length = FRAME.unpack(await stdout.readexactly(FRAME.size))
                return number, await stdout.readexactly(min(length, _LONGEST_FRAME)) if length else b""
        except TimeoutError:
            raise InvalidRequest(
                f"no line was found for {self._patience_s:g} s: pattern {self._pattern!r} is too costly for this log, "
                "or its storage is too slow; give a simpler pattern, or fewer lines with --since and --until"
            ) from None
        except asyncio.IncompleteReadError:
            raise Unavailable("the process that read the logs has exited; try again") from None
