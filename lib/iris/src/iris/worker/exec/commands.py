"""Runs commands inside attempts, each for one caller. A command ends with its caller's connection."""

import asyncio
import logging
import os
import re
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from iris.domain.usage import Usage
from iris.inspection.running import Inspection, inspect
from iris.worker.exec.streams import CommandStreams
from iris.worker.processes import NOT_EXECUTABLE, Exit, JoinSpec, Listener, RunningCommand, StartFailed
from iris.worker.strays.orphans import environment_value
from rigging.errors import Conflict, MarinError, Unavailable

logger = logging.getLogger(__name__)

MOST_COMMANDS: Final = 32
EXEC_VARIABLE: Final = "IRIS_EXEC_ID"
_GRACE_MS: Final = 1000
_START_S: Final = 10.0
_TERM: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """A command to run.

    Args:
        window: Rows and columns of its terminal; None for pipes.
        term: TERM for the terminal.
        inspection: What to find out about the attempt's processes instead, or about this worker if there is no attempt.
    """

    attempt_id: str
    argv: tuple[str, ...]
    window: tuple[int, int] | None = None
    term: str = ""
    inspection: Inspection | None = None


@dataclass(frozen=True, slots=True)
class ExecPlace:
    """A running attempt in which commands can run.

    Args:
        pid: Its first process.
        uid: Its uid; 0 for the worker's.
        inside: Creates the command line that runs another one in its container, given whether it has a terminal, and
            variables; None without a container.
    """

    pid: int
    uid: int = 0
    inside: Callable[[bool, dict[str, str]], tuple[str, ...]] | None = None


Join = Callable[[JoinSpec, Listener], RunningCommand]


class CommandCall(Protocol):
    """The connection to one command's caller."""

    gone: asyncio.Event
    """Set when the caller or the controller has gone."""

    async def request(self) -> CommandRequest | None:
        """Return the caller's request; None if the caller has gone."""
        ...

    def inputs(self) -> AsyncIterator[bytes | tuple[int, int] | None]:
        """Yield bytes for stdin, sizes of the terminal, and None for the end of stdin."""
        ...

    async def send_output(self, data: bytes, is_stderr: bool) -> None: ...

    async def send_end(self, code: int, number: int, error: str) -> None: ...

    async def close(self) -> None: ...


class AttemptCommands:
    """The commands that run inside attempts of this worker.

    Args:
        join: Starts them (`GuardianClient.join`).
        find: Returns the place of a running attempt. Raises MarinError.
        folder: A directory of the worker for pipes.
    """

    def __init__(self, join: Join, find: Callable[[str], ExecPlace], folder: Path) -> None:
        self._join = join
        self._find = find
        self._folder = folder
        self._running: set[asyncio.Task[None]] = set()
        self._feeding: set[asyncio.Task[None]] = set()
        self._calls: dict[str, CommandCall] = {}

    def begin(self, call: CommandCall, name: str) -> None:
        """Serve a caller.

        Args:
            call: The connection to the caller.
            name: The command's unique name.
        """
        task = asyncio.get_running_loop().create_task(self._serve(call, name))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def end(self, name: str) -> None:
        """End a command because its caller has gone."""
        if name in self._calls:
            self._calls[name].gone.set()

    def end_leftovers(self) -> None:
        """End the commands in containers that an earlier worker process left behind when it was killed."""
        kill_marked(self._mark(""))

    async def close(self) -> None:
        """End all commands."""
        tasks = (*self._running, *self._feeding)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, call: CommandCall, name: str) -> None:
        self._calls[name] = call
        try:
            request = await call.request()
            if request is not None:
                code, number, error = await self._run(call, request, name)
                await call.send_end(code, number, error)
        except MarinError as error:
            logger.info("the caller of a command is gone: %s", error)
        finally:
            del self._calls[name]
            await call.close()

    async def _run(self, call: CommandCall, request: CommandRequest, name: str) -> tuple[int, int, str]:
        """Run a command; return its exit code and signal, and why it was not started."""
        if request.inspection is not None:
            return await self._inspect(call, request, request.inspection)
        try:
            place = self._find(request.attempt_id)
            if len(self._running) > MOST_COMMANDS:
                raise Unavailable(f"this worker runs {MOST_COMMANDS} commands in its tasks already: end one of them")
            streams = CommandStreams(self._folder, request.window, 0 if place.inside else place.uid)
        except (MarinError, OSError) as error:
            return NOT_EXECUTABLE, 0, str(error)
        ended = _CommandEnd()
        command = self._join(_spec(request, place, name, self._mark(name), streams.paths), ended)
        try:
            async with asyncio.timeout(_START_S):
                await ended.started
            streams.started()
            self._feed(call, streams)
            return await _attend(call, streams, ended.exit)
        except StartFailed as error:
            return error.exit_code, 0, str(error)
        except TimeoutError:
            return NOT_EXECUTABLE, 0, f"the host did not start the command within {_START_S:g} s"
        finally:
            streams.close()
            command.terminate(_GRACE_MS)
            if place.inside is not None:
                kill_marked(self._mark(name))

    async def _inspect(self, call: CommandCall, request: CommandRequest, asked: Inspection) -> tuple[int, int, str]:
        async def pass_on() -> None:
            place = self._find(request.attempt_id) if request.attempt_id else ExecPlace(os.getpid())
            if place.inside is not None and asked.what == "mem":
                raise Conflict("memory profiles are impossible in containers: the host's memray cannot write there")
            async with aclosing(inspect(asked, place.pid, request.attempt_id, place.uid)) as pieces:
                async for piece in pieces:
                    await call.send_output(piece, False)

        work, gone = asyncio.create_task(pass_on()), asyncio.create_task(call.gone.wait())
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise Unavailable("it closed its connection")
            error = work.exception()
            return (NOT_EXECUTABLE if error else 0), 0, str(error or "")
        finally:
            work.cancel()
            gone.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    def _mark(self, name: str) -> str:
        return f"{self._folder}:{name}"

    def _feed(self, call: CommandCall, streams: CommandStreams) -> None:
        # Until the call is closed: to cancel a read of gRPC ends the call.
        task = asyncio.get_running_loop().create_task(_feed(call, streams))
        self._feeding.add(task)
        task.add_done_callback(self._feeding.discard)


def _spec(request: CommandRequest, place: ExecPlace, name: str, mark: str, paths: tuple[str, ...]) -> JoinSpec:
    term = request.term if _TERM.fullmatch(request.term) else "xterm"
    env = {} if request.window is None else {"TERM": term}
    argv = request.argv
    if place.inside is not None:
        argv = (*place.inside(request.window is not None, {**env, EXEC_VARIABLE: mark}), *argv)
    return JoinSpec(f"exec {name}", request.attempt_id, argv, paths, env)


async def _attend(call: CommandCall, streams: CommandStreams, exit: "asyncio.Future[Exit]") -> tuple[int, int, str]:
    """Pass on a command's streams until it has ended. Raise Unavailable if its caller goes away."""
    copies = [
        asyncio.create_task(_pass_on(call, output, bool(number))) for number, output in enumerate(streams.outputs())
    ]
    gone = asyncio.create_task(call.gone.wait())
    try:
        await asyncio.wait((exit, gone), return_when=asyncio.FIRST_COMPLETED)
        if not exit.done():
            raise Unavailable("it closed its connection")
        streams.ended()
        await asyncio.gather(*copies)
        return exit.result().code, exit.result().signal, ""
    finally:
        for task in (*copies, gone):
            task.cancel()
        await asyncio.gather(*copies, gone, return_exceptions=True)


async def _pass_on(call: CommandCall, output: AsyncIterator[bytes], is_stderr: bool) -> None:
    async for data in output:
        await call.send_output(data, is_stderr)


async def _feed(call: CommandCall, streams: CommandStreams) -> None:
    async for item in call.inputs():
        if item is None:
            streams.end_input()
        elif isinstance(item, bytes):
            await streams.write(item)
        else:
            streams.resize(*item)


def kill_marked(mark: str) -> None:
    """Kill the processes in containers whose mark begins so. Container engines leave them behind when their own program
    is killed.
    """
    for name in os.listdir("/proc"):
        if name.isdigit() and (environment_value(int(name), EXEC_VARIABLE) or "").startswith(mark):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(int(name), signal.SIGKILL)


class _CommandEnd:
    """Listens to a command: `started` is done when it runs, or fails with StartFailed; `exit` is done at its end."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.started: asyncio.Future[None] = loop.create_future()
        self.exit: asyncio.Future[Exit] = loop.create_future()

    def on_started(self, pid: int) -> None:
        del pid
        if not self.started.done():
            self.started.set_result(None)

    def on_refused(self, error: StartFailed) -> None:
        if not self.started.done():
            self.started.set_exception(error)

    def on_log(self, size: int) -> None: ...

    def on_usage(self, usage: Usage) -> None: ...

    def on_exit(self, exit: Exit) -> None:
        if not self.exit.done():
            self.exit.set_result(exit)
