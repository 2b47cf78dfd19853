"""The worker's side of its guardian: finds or starts it, and serves as the supervisor's runtime."""

import asyncio
import base64
import logging
import os
import socket
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from iris.domain.usage import usage_from
from iris.worker.guardian.launch import DEFAULT_LINGER_S, GuardianPaths, build_of, launch
from iris.worker.guardian.protocol import (
    MAX_FRAME_BYTES,
    VERSION,
    JsonFrameReader,
    Message,
    ProtocolError,
    encode,
)
from iris.worker.guardian.requests import Json, fields_of, fields_of_common, fields_of_join
from iris.worker.isolation.plan import IsolationMode
from iris.worker.limits.plan import Breach, LimitsMode
from iris.worker.processes import (
    CommonSpec,
    Exit,
    InheritedAttempt,
    JoinSpec,
    Listener,
    ProcessSpec,
    StartFailed,
    StartFailure,
)
from rigging.errors import Conflict, Unavailable
from rigging.log_tail import log_tail

logger = logging.getLogger(__name__)

_DESCRIPTORS_PER_ATTEMPT: Final = 4
_DESCRIPTORS_KEPT: Final = 200
_MOST_COMMONS: Final = 64
_AGAIN_S: Final = 0.05
_PATIENCE_S: Final = 20.0
_FINISH_S: Final = 5.0
SILENCE_S: float = 5.0
"""A guardian counts as not answering if it sends nothing for this long after a start request."""
_FOLDER: Final = Path(__file__).parent


class _Command:
    """A command passed to the guardian by this process or by an earlier one."""

    def __init__(
        self, owner: str, listener: Listener, client: "GuardianClient", dies_with_worker: bool, asked_at: float
    ) -> None:
        self.listener = listener
        self.asked_at = asked_at
        self.dies_with_worker = dies_with_worker
        self.started = False
        self._owner = owner
        self._client = client

    def terminate(self, grace_ms: int, note: Mapping[str, Any] | None = None) -> None:
        self._client.ask("stop", self._owner, grace_ms, note)


class GuardianClient(asyncio.Protocol):
    """A connection to the guardian, after its hello. Implements `running.Runtime`.

    Attributes:
        guardian_id: Identifies this guardian and thus its set of tasks.
        limits: How it limits tasks (see LIMITS_ATTRIBUTE); empty if it is of an earlier release.
        lost: Done when the connection is lost; if the guardian died, its tasks are dead, too.
    """

    def __init__(self, reader: JsonFrameReader, hello: Json) -> None:
        self.guardian_id = str(hello["guardian"])
        self.pid = int(hello["pid"])
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.isolation = IsolationMode(hello["isolation"])
        self.limits = str(hello.get("limits", ""))
        self._most_live = max(1, (int(hello.get("descriptors", 1024)) - _DESCRIPTORS_KEPT) // _DESCRIPTORS_PER_ATTEMPT)
        self._held: dict[str, Json] = {str(fields["id"]): fields for fields in hello.get("held", [])}
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.WriteTransport | None = None
        self._commands: dict[str, _Command] = {}
        self._live: set[str] = set()
        self._requests: list[list[Any]] = []
        self._commons: dict[CommonSpec, int] = {}  # that the guardian was told; the oldest first
        self._last_number = 0
        self._leaving = False
        self._heard_at = self._loop.time()

    # --- the runtime ---

    @property
    def live_count(self) -> int:
        return len(self._live)

    @property
    def most_live(self) -> int:
        return self._most_live

    def start(self, spec: ProcessSpec, listener: Listener) -> _Command:
        command = self._listen(spec.owner, listener, spec.dies_with_worker)
        if spec.common is None:
            self.ask("start", fields_of(spec.whole()))
        else:
            mounts = [mount.words() for mount in spec.mounts]
            self.ask("run", self._number(spec.common), spec.owner, spec.cwd, spec.log, spec.env, spec.note, mounts)
        return command

    def join(self, spec: JoinSpec, listener: Listener) -> _Command:
        """Run a command inside a running attempt, as leader of its own session."""
        command = self._listen(spec.owner, listener, True)
        self.ask("join", fields_of_join(spec))
        return command

    def _number(self, common: CommonSpec) -> int:
        """Return the guardian's number for a common part; send the part if it is new."""
        number = self._commons.get(common)
        if number is None:
            number = self._last_number = self._last_number + 1
            self._commons[common] = number
            self.ask("common", number, fields_of_common(common))
            if len(self._commons) > _MOST_COMMONS:
                self.ask("drop", self._commons.pop(next(iter(self._commons))))
        return number

    def held(self) -> list[InheritedAttempt]:
        return [
            InheritedAttempt(
                owner=name,
                pid=int(fields.get("pid", 0)),
                log=str(fields.get("log", "")),
                log_size=int(fields.get("log_size", 0)),
                at_ms=int(fields.get("at_ms", 0)),
                note=fields.get("note") or {},
            )
            for name, fields in self._held.items()
        ]

    def take_up(self, owner: str, listener: Listener) -> _Command:
        fields = self._held.pop(owner)
        command = self._listen(owner, listener, False)
        command.started = bool(fields.get("pid"))
        if fields.get("usage"):
            self.take(["usage", owner, fields["usage"]])
        if fields.get("refused"):
            self.take(["refused", owner, *fields["refused"]])
        elif fields.get("end"):
            self.take(["ended", owner, fields["end"]])
        return command

    def forget(self, owner: str) -> None:
        self._commands.pop(owner, None)
        self.ask("forget", owner)

    def trouble(self) -> str:
        """Return the reason why nothing can be started, which is that the guardian does not answer; empty while it
        answers.
        """
        asked = (self._commands[name] for name in self._live)
        since = min((command.asked_at for command in asked if not command.started), default=None)
        if since is None or self._loop.time() - max(since, self._heard_at) < SILENCE_S:
            return ""
        return f"the process that starts its tasks (guardian, process {self.pid}) does not answer"

    def contact(self, sent_ms: int) -> None:
        """Record that the controller has acknowledged a heartbeat sent at this time (`protocol.boot_ms`)."""
        self.ask("contact", sent_ms)

    async def finish(self) -> None:
        """End the guardian and all its tasks; return when it has exited."""
        self._leaving = True
        self.ask("finish", 0)
        try:
            async with asyncio.timeout(_FINISH_S):
                await asyncio.shield(self.lost)
        except TimeoutError:
            logger.warning("the guardian (process %d) has not exited after %g s", self.pid, _FINISH_S)

    def close(self) -> None:
        """Close the connection; tasks continue to run."""
        self._leaving = True
        if self._transport is not None:
            self._transport.close()

    def ask(self, *request: Any) -> None:
        """Send a request to the guardian; the requests of one turn of the loop are sent as one message."""
        if not self._requests:
            self._loop.call_soon(self._send)
        self._requests.append(list(request))

    def _listen(self, owner: str, listener: Listener, dies_with_worker: bool) -> _Command:
        command = self._commands[owner] = _Command(owner, listener, self, dies_with_worker, self._loop.time())
        self._live.add(owner)
        return command

    def _send(self) -> None:
        requests, self._requests = self._requests, []
        if self._transport is not None and not self.lost.done():
            self._transport.write(encode({"do": requests}))

    # --- the connection ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's are of no class of asyncio

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        for message in self._reader.feed(data):
            news = message.get("news")
            for item in news if isinstance(news, list) else ():
                self.take(item)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._leaving:
            logger.error("the guardian (process %d) died%s", self.pid, f": {error}" if error else "")
        if not self.lost.done():
            self.lost.set_result(None)

    def take(self, item: list[Any]) -> None:
        """Process one report; ignore unknown reports."""
        if self._held and len(item) > 1 and item[1] in self._held:
            _learn(self._held[item[1]], item[0], item[2:])
            return
        match item:
            case ["grew", str(name), int(size)] if name in self._commands:
                self._commands[name].listener.on_log(size)
            case ["started", str(name), int(pid), *_] if name in self._commands:
                self._started(self._commands[name], pid)
            case ["refused", str(name), str(why), str(text), int(code)] if name in self._commands:
                reason = StartFailure(why) if why in set(StartFailure) else StartFailure.HOST
                self._over(name).listener.on_refused(StartFailed(text, code, reason))
            case ["over", str(name), int(pid), int(code), int(number), int(size), int(at_ms)] if name in self._commands:
                self._ended(name, pid, size, Exit(code, number, at_ms=at_ms))
            case ["usage", str(name), list(numbers)] if name in self._commands:
                self._commands[name].listener.on_usage(usage_from(numbers))
            case ["ended", str(name), dict(end)] if name in self._commands:
                self._ended(name, int(end.get("pid", 0)), int(end["log_size"]), _exit_from(end))

    def _ended(self, name: str, pid: int, log_size: int, exit: Exit) -> None:
        command = self._over(name)
        self._started(command, pid)
        command.listener.on_log(log_size)
        command.listener.on_exit(exit)

    def _started(self, command: _Command, pid: int) -> None:
        if not command.started:
            command.started = True
            command.listener.on_started(pid)

    def _over(self, name: str) -> _Command:
        self._live.discard(name)
        command = self._commands[name]
        if command.dies_with_worker:
            self.forget(name)
        return command


def _learn(held: Json, verb: str, details: list[Any]) -> None:
    """Update an attempt from the hello that has not been adopted yet."""
    match verb, details:
        case "started", [int(pid), *_]:
            held["pid"] = pid
        case "grew", [int(size)]:
            held["log_size"] = size
        case "refused", [_, _, _]:
            held["refused"] = details
        case "usage", [list(numbers)]:
            held["usage"] = numbers
        case "ended", [dict(end)]:
            held["end"] = end
        case "over", [int(pid), int(code), int(number), int(size), int(at_ms)]:
            held["end"] = {"pid": pid, "code": code, "signal": number, "log_size": size, "at_ms": at_ms}


def _breach(words: object) -> Breach | None:
    match words:
        case [str(what), str(text)]:
            return Breach(what, text)
    return None


def _exit_from(end: Json) -> Exit:
    return Exit(
        code=int(end["code"]),
        signal=int(end["signal"]),
        tail=base64.b64decode(end.get("tail", "")),
        lost=str(end.get("lost", "")),
        fenced=str(end.get("fenced", "")),
        at_ms=int(end.get("at_ms", 0)),
        unmarked=str(end.get("unmarked", "")),
        breach=_breach(end.get("breach")),
        has_evidence=bool(end.get("evidence")),
    )


async def attach(
    paths: GuardianPaths,
    *,
    start: Callable[[], Any] | None = None,
    linger_s: float = DEFAULT_LINGER_S,
    patience_s: float = _PATIENCE_S,
    isolation: IsolationMode = IsolationMode.OVERLAY,
    limits: LimitsMode = LimitsMode.AUTO,
    max_processes: int = 0,
) -> GuardianClient:
    """Connect to the guardian of a work directory as its worker; start a guardian if there is none.

    Args:
        paths: The files of the guardian.
        start: Starts a guardian; `launch.launch` by default.
        linger_s: How long a new guardian without a worker or tasks waits for a worker, in seconds.
        patience_s: Seconds to wait for a guardian that is exiting or has another worker.
        isolation: The strongest isolation between tasks that a new guardian tries.
        limits: How a new guardian enforces limits.
        max_processes: Maximum number of processes per task for a new guardian; 0 for most of the host's maximum.

    Raises:
        Conflict: The guardian uses another protocol version.
        Unavailable: The guardian cannot be started, or has another worker.
    """
    deadline = asyncio.get_running_loop().time() + patience_s
    why = ""
    while asyncio.get_running_loop().time() < deadline:
        try:
            stream = await asyncio.to_thread(_connect, paths)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            before = paths.log.stat().st_size if paths.log.exists() else 0
            process = await asyncio.to_thread(
                start or partial(launch, paths, (), linger_s, isolation, limits, max_processes)
            )
            if await asyncio.to_thread(process.wait) != 0:
                why = "".join(f": {line}" for line in log_tail(paths.log, before, 1))
                raise Unavailable(f"the guardian did not start{why} (its log: {paths.log})") from error
            continue
        try:
            client = await _greet(stream, patience_s)
        except (ConnectionError, ProtocolError, TimeoutError, Unavailable) as error:
            why = str(error) or "it does not answer"  # as when it is suspended
            stream.close()
            await asyncio.sleep(_AGAIN_S)
            continue
        except BaseException:
            stream.close()
            raise
        return client
    raise Unavailable(f"the guardian of {paths.root} does not accept this worker: {why or 'it does not listen'}")


def _connect(paths: GuardianPaths) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with paths.short_name() as name:
            stream.connect(name)
    except BaseException:
        stream.close()
        raise
    stream.setblocking(False)
    return stream


async def _greet(stream: socket.socket, patience_s: float) -> GuardianClient:
    loop = asyncio.get_running_loop()
    hello = {"version": VERSION, "pid": os.getpid(), "role": "worker"}
    async with asyncio.timeout(patience_s):
        await loop.sock_sendall(stream, encode({"hello": hello}))
        reader = JsonFrameReader(MAX_FRAME_BYTES)
        messages: list[Message] = []
        while not messages:
            data = await loop.sock_recv(stream, 1 << 18)
            if not data:
                raise ConnectionResetError("it closed the connection")
            messages = list(reader.feed(data))
    answer, *more = messages
    if "refused" in answer:
        if "version" in answer:
            raise Conflict(
                f"the guardian is incompatible: {answer['refused']}; stop it, or start the worker with its release"
            )
        raise Unavailable(str(answer["refused"]))
    if not isinstance(answer.get("hello"), dict):
        raise ProtocolError("the guardian's first message was not a hello")
    client = GuardianClient(reader, answer["hello"])
    if answer["hello"].get("build") != build_of(_FOLDER) and not client.held():
        # Of another release, and it holds nothing: there is no reason to keep it.
        await loop.sock_sendall(stream, encode({"do": [["finish", 0]]}))
        while await loop.sock_recv(stream, 1 << 16):
            pass
        raise Unavailable("the guardian is of another release and was asked to exit")
    await loop.create_unix_connection(lambda: client, sock=stream)
    for message in more:
        for item in message.get("news", ()):
            client.take(item)
    return client
