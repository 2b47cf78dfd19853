"""Watches attempts whose jobs request health checks, and reports unhealthy or stalled ones."""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from iris.worker.users.identity import TaskIdentity
from iris.worker.watch.progress import dump_threads, touched_ns
from iris.worker.watch.rules import WatchRules, check_failed, stalled
from rigging.errors import MarinError

_CHECK: Final = str(Path(__file__).with_name("check.py"))
_SHOWN: Final = 300
_NOT_UP: Final = ("no such container", "no container with name", "container state improper", "is not running")
_DUMP_S: Final = 1.0
"""Maximum time for a thread dump to be written and read from the pipe."""
_SHORTEST_LOOK_S: Final = 0.02
_LONGEST_LOOK_S: Final = 5.0
_LOOKS: Final = 10


@dataclass(frozen=True, slots=True)
class Watched:
    """A running attempt.

    Args:
        pid: Its first process.
        progress: Its progress file; empty for none.
        identity: Its identity; None for the worker's.
        inside: Words that run a command in its container; empty for none.
    """

    attempt_id: str
    pid: int
    rules: WatchRules
    progress: str
    identity: TaskIdentity | None = None
    inside: tuple[str, ...] = ()


class ToolRunner(Protocol):
    """Runs a command for the worker; returns whether it succeeded, and the tail of its output."""

    async def run(self, argv: Sequence[str], env: dict[str, str], cwd: Path) -> tuple[bool, str]: ...


class Watcher:
    """Watches each attempt until it is unhealthy or `end` is called.

    Args:
        tools: Runs health commands.
        on_unhealthy: Called once per unhealthy attempt with the reason.
    """

    def __init__(
        self,
        tools: ToolRunner,
        on_unhealthy: Callable[[str, str], None],
    ) -> None:
        self._tools = tools
        self._on_unhealthy = on_unhealthy
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}

    def begin(self, watched: Watched) -> None:
        """Start watching an attempt."""
        loop = asyncio.get_running_loop()
        work = []
        if watched.rules.health_cmd:
            work.append(loop.create_task(self._check(watched)))
        if watched.rules.stall_s and watched.progress:
            work.append(loop.create_task(self._look(watched)))
        self._tasks[watched.attempt_id] = work

    def end(self, attempt_id: str) -> None:
        """Stop watching an attempt that has ended."""
        for task in self._tasks.pop(attempt_id, ()):
            task.cancel()

    async def _check(self, watched: Watched) -> None:
        rules = watched.rules
        failures = 0
        while True:
            await asyncio.sleep(rules.interval_s)
            last = await self._failure(watched)
            failures = failures + 1 if last else 0
            reason = check_failed(rules, failures, last) if last else ""
            if reason:
                self._on_unhealthy(watched.attempt_id, reason)
                return

    async def _failure(self, watched: Watched) -> str:
        """Return the failure of the health command; empty if it succeeded."""
        rules = watched.rules
        who = () if watched.identity is None else map(str, watched.identity.words())
        argv = (sys.executable, "-P", _CHECK, str(watched.pid), rules.health_cmd, *who)
        env: dict[str, str] = {}
        if watched.inside:
            argv, env = (*watched.inside, "/bin/sh", "-c", rules.health_cmd), dict(os.environ)
        try:
            async with asyncio.timeout(rules.timeout_s):
                succeeded, output = await self._tools.run(argv, env, Path("/"))
        except TimeoutError:
            return f"a timeout after {rules.timeout_s:g} s"
        except (MarinError, OSError) as error:
            # The host's fault says nothing about the task.
            del error
            return ""
        words = output.strip()[-_SHOWN:]
        if watched.inside and any(word in words.lower() for word in _NOT_UP):
            return ""  # its image is being pulled
        return "" if succeeded else f"output: {words}" if words else "no output"

    async def _look(self, watched: Watched) -> None:
        rules = watched.rules
        pause = min(max(rules.stall_s / _LOOKS, _SHORTEST_LOOK_S), _LONGEST_LOOK_S)
        seen, since = touched_ns(watched.progress), time.monotonic()
        while True:
            await asyncio.sleep(pause)
            now_ns, now = touched_ns(watched.progress), time.monotonic()
            if now_ns != seen:
                seen, since = now_ns, now
            elif now - since >= rules.stall_s:
                break
        dumped = dump_threads(watched.progress, watched.attempt_id)
        if dumped:
            await asyncio.sleep(_DUMP_S)
        self._on_unhealthy(watched.attempt_id, stalled(rules, dumped))
