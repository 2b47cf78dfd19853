"""Runs the inspection program beside a worker or controller."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Final

from rigging.errors import Conflict, InvalidRequest, Unavailable

KINDS: Final = ("status", "logs", "threads", "cpu", "mem")
MOST_SECONDS: Final = 600
_MOST: Final = 4
_SLACK_S: Final = 60.0
_PIECE: Final = 64 * 1024
# A task's user can read the variables of a process that runs as that user: no others of the worker's.
_VARIABLES: Final = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TMPDIR")
_running: set[object] = set()


@dataclass(frozen=True, slots=True)
class Inspection:
    """A request to look at a process.

    Args:
        what: One of `KINDS`.
        seconds: Duration of a profile.
    """

    what: str
    seconds: int

    def check(self) -> None:
        """Raise InvalidRequest for an unknown kind or an impossible duration."""
        if self.what not in KINDS:
            raise InvalidRequest(f"{self.what!r} is not something to find out; use one of {', '.join(KINDS)}")
        if not 1 <= self.seconds <= MOST_SECONDS:
            raise InvalidRequest(f"a profile takes 1 to {MOST_SECONDS} s, not {self.seconds}")


async def inspect(asked: Inspection, pid: int, attempt: str = "", uid: int = 0) -> AsyncGenerator[bytes, None]:
    """Yield the result of looking at a process.

    Args:
        asked: What to find out.
        pid: The process.
        attempt: Its attempt; empty for none.
        uid: Its uid, with which to look at it; 0 for this process's.

    Raises:
        Conflict: It cannot be found out; the message says why.
        InvalidRequest: The log of an attempt was asked for.
        Unavailable: Too many run already.
    """
    if attempt and asked.what == "logs":
        # Its stderr may have a name in its own view of the files that is another file's in this process's.
        raise InvalidRequest("the log of a task is that of its job: iris job logs")
    if len(_running) >= _MOST:
        raise Unavailable(f"{_MOST} profiles are being made there already: try again later")
    words = ("-P", "-m", "iris.inspection.program", asked.what, str(pid), str(asked.seconds), attempt)
    pipe, token = asyncio.subprocess.PIPE, object()
    # Debuggers of a stranger's process must not be root.
    who: dict[str, Any] = {"user": uid, "group": uid, "extra_groups": ()} if uid else {}
    _running.add(token)
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *words,
            **who,
            env={name: os.environ[name] for name in _VARIABLES if name in os.environ},
            cwd="/",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with asyncio.timeout(asked.seconds * 2 + _SLACK_S):
                while data := await process.stdout.read(_PIECE):
                    yield data
                errors = await process.stderr.read(_PIECE)
                if await process.wait():
                    raise Conflict(errors.decode(errors="replace").strip() or f"exit code {process.returncode}")
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
    except TimeoutError:
        raise Conflict("it took too long") from None
    finally:
        _running.discard(token)
