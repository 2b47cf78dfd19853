"""Answers operators' queries in separate processes, one query per user at a time."""

import asyncio
import contextlib
import json
import signal
import struct
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from iris.controller.helper_process import end_helper, start_helper
from iris.rpc.status_map import error_of_status, status_of_number
from iris.store.query import TIME_LIMIT_S, too_slow
from rigging.errors import BudgetExceeded

FRAME: Final = struct.Struct("<iI")
MEMORY_LIMIT: Final = 512 * 1024 * 1024
"""Maximum address space in bytes of a process that runs queries."""

_MODULE: Final = "iris.controller.services.query_process"
_LONGEST_ANSWER: Final = 48 * 1024 * 1024
_AT_ONCE: Final = 4
# Together with a query's own limit less than clients wait.
_TURN_S: Final = 3.0
_START_S: Final = 5.0
_IDLE_S: Final = 60.0


@dataclass(slots=True)
class QueryProcesses:
    """The processes that answer queries. A process stays for a minute after its last query, because a start takes
    longer than most queries.

    Args:
        state_dir: The controller's state directory.
        time_limit_s: Timeout of a query.
        turn_s: Maximum time of a query in the queue.
        at_once: Maximum number of concurrent queries; more would slow down the scheduler.
    """

    state_dir: Path
    time_limit_s: float = TIME_LIMIT_S
    turn_s: float = _TURN_S
    at_once: int = _AT_ONCE
    _slots: asyncio.Semaphore = field(init=False)
    _turns: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary, init=False)
    _kept: Process | None = field(default=None, init=False)
    _end_kept: asyncio.TimerHandle | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.at_once)

    async def ask(self, user: str, sql: str, max_rows: int, reader: str | None) -> bytes:
        """Return the answer to a query, a serialized `QueryResponse`.

        Args:
            user: The user of the query.
            sql: One SELECT statement.
            max_rows: As in `iris.store.query.run_query`.
            reader: As in `iris.store.query.run_query`.

        Raises:
            BudgetExceeded: The query takes too long or too much memory, or waits too long in the queue.
            MarinError: Raised by `run_query`.
        """
        asked = {
            "state_dir": str(self.state_dir),
            "sql": sql,
            "max_rows": max_rows,
            "time_limit_s": self.time_limit_s,
            "reader": reader,
        }
        async with self._turn(user):
            process = self._take_kept() or await start_helper(_MODULE)
            reusable = False
            try:
                status, data = await self._answer(process, json.dumps(asked).encode() + b"\n")
                reusable = status == 0
            finally:
                if reusable and self._kept is None:
                    self._keep(process)
                else:
                    await end_helper(process)
        if status:
            raise error_of_status(status_of_number(status), data.decode(errors="replace"))
        return data

    async def close(self) -> None:
        """End the remaining process."""
        process = self._take_kept()
        if process is not None:
            await end_helper(process)

    @contextlib.asynccontextmanager
    async def _turn(self, user: str) -> AsyncGenerator[None]:
        own = self._turns.setdefault(user, asyncio.Lock())
        words = f"a query of {user} is still being answered, and a user has one at a time"
        async with contextlib.AsyncExitStack() as held:
            try:
                async with asyncio.timeout(self.turn_s):
                    await held.enter_async_context(own)
                    words = f"queries of {self.at_once} other users are being answered"
                    await held.enter_async_context(self._slots)
            except TimeoutError:
                raise BudgetExceeded(f"{words}; try again in a few seconds") from None
            yield

    async def _answer(self, process: Process, line: bytes) -> tuple[int, bytes]:
        assert process.stdin is not None  # both are pipes
        assert process.stdout is not None
        try:
            async with asyncio.timeout(self.time_limit_s + _START_S):
                process.stdin.write(line)
                await process.stdin.drain()
                status, length = FRAME.unpack(await process.stdout.readexactly(FRAME.size))
                if length > _LONGEST_ANSWER:
                    raise BudgetExceeded(f"the answer has {length} bytes; at most {_LONGEST_ANSWER} are allowed")
                return status, await process.stdout.readexactly(length)
        except TimeoutError:
            raise too_slow(self.time_limit_s) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            if (ended := await process.wait()) == -signal.SIGALRM:
                raise too_slow(self.time_limit_s) from None
            raise BudgetExceeded(
                f"the process that answered the query ended with status {ended}, say for want of memory; ask for less"
            ) from None

    def _keep(self, process: Process) -> None:
        self._kept = process
        self._end_kept = asyncio.get_running_loop().call_later(_IDLE_S, self._let_go)

    def _let_go(self) -> None:
        process = self._take_kept()
        if process is not None and process.stdin is not None:
            process.stdin.close()  # it ends by that

    def _take_kept(self) -> Process | None:
        process, self._kept = self._kept, None
        if self._end_kept is not None:
            self._end_kept.cancel()
        return process if process is not None and process.returncode is None else None
