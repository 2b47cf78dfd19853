"""The process that serves the pages. It starts at the first request for a link, or with the controller.

The process is an ordinary client of the controller, with separate memory and work. The controller sends lines of JSON
to its stdin, first settings, then requests for links, and reads the answers from its stdout. The process exits at the
end of its stdin.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from iris.controller.config.controller_config import LOOPBACK, Address
from iris.rpc.auth import load_or_create_secret
from rigging.errors import InvalidRequest, Unavailable
from rigging.timing import ExponentialBackoff

logger = logging.getLogger(__name__)

PORT_FILE: Final = "dashboard-port"
_KEY_FILE: Final = "dashboard-key"
_START_S: Final = 120.0
"""Maximum start time: on a busy machine, imports alone take tens of seconds."""
_ANSWER_S: Final = 10.0
_SETTLED_S: Final = 60.0
"""Uptime after which an exit no longer counts as a failed start."""
_END_S: Final = 4.0
_COMMAND: Final = (sys.executable, "-m", "iris.dashboard")
Result = TypeVar("Result")
_NEEDED: Final = ("starlette", "uvicorn", "jinja2", "httpx2", "websockets")


@dataclass(frozen=True, slots=True)
class LoginLink:
    """A link that signs a user in.

    Attributes:
        url: A single-use link, valid for ten minutes.
        note: A note for the user; "" for none.
    """

    url: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class DashboardSettings:
    """The settings of the process.

    Attributes:
        state_dir: The controller's state directory.
        secret: The cluster's secret, to act for signed-in viewers.
        port: The port on loopback; 0 starts the process on demand on any free port.
        cluster_name: Shown on the pages.
        ca_sha256: The controller's CA; "" for unencrypted connections.
        task_pages_domain: The domain of tasks' pages, one name each; "" for none.
        command: The command that starts the process.
        answer_s: Timeout for a link; then the process is replaced.
    """

    state_dir: Path
    secret: bytes
    port: int = 0
    cluster_name: str = ""
    ca_sha256: str = ""
    task_pages_domain: str = ""
    command: Sequence[str] = _COMMAND
    answer_s: float = _ANSWER_S


class DashboardProcess:
    """Starts the process, requests links from it, and ends it.

    Args:
        settings: The settings for the process.
    """

    def __init__(self, settings: DashboardSettings) -> None:
        self._settings = settings
        self._controller = ""
        self._process: Process | None = None
        self._url = ""
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._pauses = ExponentialBackoff(initial=0.2, maximum=60.0)

    async def begin(self, controller: Address) -> None:
        """Record the controller's address, and start the process if configured.

        The process starts if it has a fixed port, or if it ran beside the previous controller, so that open pages
        reconnect.
        """
        host = LOOPBACK if controller.host in ("0.0.0.0", "::", "") else controller.host
        self._controller = str(Address(host, controller.port))
        if not self._port():
            return
        try:
            async with self._lock:
                await self._start(self._port())
        except (InvalidRequest, Unavailable, OSError) as error:
            # The cluster is worth more than its pages.
            logger.warning("the dashboard does not start: %s", error)

    async def link(
        self, user: str, *, is_admin: bool, may_write: bool = False, port: int = 0, token_id: str = ""
    ) -> LoginLink:
        """Return a link that signs a user in, once the process serves.

        Args:
            user: The user to sign in.
            is_admin: Whether the user has admin permissions.
            may_write: Whether the pages may stop jobs and cordon workers.
            port: The port, if the process is not listening yet; otherwise the note names its port. 0 for the configured
                port.
            token_id: The token that requested the link. Revoking the token ends the session. "" if it cannot be
                revoked.

        Raises:
            InvalidRequest: A required package is not installed, or the port is invalid.
            Unavailable: The process does not start, or does not answer.
        """
        if not 0 <= port <= 65535:
            raise InvalidRequest(f"port {port}: must be from 0 (any) to 65535")
        asked = {"user": user, "admin": is_admin, "may_write": may_write, "token_id": token_id}
        # Who asked may go away meanwhile: what was begun is finished, for the next who asks.
        return await asyncio.shield(self._begun(self._link(asked, port)))

    async def _link(self, asked: dict[str, Any], port: int) -> LoginLink:
        async with self._lock:
            note = ""
            served = self._serves
            if not served:
                note = await self._start(port or self._port())
            elif port and port != (serving := int(self._url.rpartition(":")[2])):
                note = f"the pages are served at port {serving} already, not at {port}"
            try:
                answer = await self._ask({"link": asked}, self._settings.answer_s)
            except Unavailable as error:
                if not served:
                    raise
                logger.warning("%s: starting another", error)
                await self._start(self._port())
                answer = await self._ask({"link": asked}, self._settings.answer_s)
            return LoginLink(self._url + str(answer["path"]), note)

    async def close(self, *, for_good: bool) -> None:
        """End the process.

        Args:
            for_good: Whether the next controller must not restart the process.
        """
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if for_good:
            (self._settings.state_dir / PORT_FILE).unlink(missing_ok=True)
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _END_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    @property
    def _serves(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def _begun(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Return a task that runs this work and is cancelled when this object closes."""
        task = asyncio.create_task(work)
        self._tasks.add(task)

        def ended(_: object) -> None:
            self._tasks.discard(task)
            if not task.cancelled():
                task.exception()  # perhaps nobody waits for it any more

        task.add_done_callback(ended)
        return task

    async def _keep(self, process: Process) -> None:
        """Restart the process when it ends, until one serves."""
        began = asyncio.get_running_loop().time()
        await process.wait()
        if asyncio.get_running_loop().time() - began > _SETTLED_S:
            self._pauses.reset()
        while True:
            await asyncio.sleep(self._pauses.next_interval())
            async with self._lock:
                if self._serves:
                    return  # for somebody who asked for a link
                logger.warning("the dashboard has ended with code %s; starting it again", process.returncode)
                try:
                    await self._start(self._port())
                except (InvalidRequest, Unavailable, OSError) as error:
                    logger.warning("the dashboard does not start: %s", error)
                else:
                    return

    def _port(self) -> int:
        """Return the port: configured, or else the previous one; 0 for any."""
        return self._settings.port or self._former_port()

    def _former_port(self) -> int:
        try:
            text = (self._settings.state_dir / PORT_FILE).read_text()
        except (OSError, ValueError):
            return 0
        return int(text) if text.isascii() and text.isdigit() and int(text) < 65536 else 0

    async def _start(self, port: int) -> str:
        """Start the process, and return its first message."""
        lacking = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
        if lacking:
            raise InvalidRequest(
                f"the dashboard needs {', '.join(lacking)}, which the controller's environment lacks: there, "
                "`uv pip install 'marin-iris[dashboard]'`, and start the controller again"
            )
        settings = self._settings
        key = load_or_create_secret(settings.state_dir / _KEY_FILE)
        process = self._process = await asyncio.create_subprocess_exec(
            *settings.command, stdin=PIPE, stdout=PIPE, start_new_session=True
        )
        said = await self._ask(
            {
                "controller": self._controller,
                "secret": settings.secret.hex(),
                "key": key.hex(),
                "port": port,
                "ca_sha256": settings.ca_sha256,
                "cluster_name": settings.cluster_name,
                "task_pages_domain": settings.task_pages_domain,
            },
            _START_S,
        )
        self._begun(self._keep(process))
        self._url = str(said["url"])
        (settings.state_dir / PORT_FILE).write_text(self._url.rpartition(":")[2])
        logger.info("the dashboard serves at %s", self._url)
        return str(said["note"])

    async def _ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Return the answer to a request. After a failure, kill the process; the next link starts another."""
        process = self._process
        assert process is not None
        try:
            return await self._answer(process, request, seconds)
        except BaseException:
            self._process = None
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise

    async def _answer(self, process: Process, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        assert process.stdin is not None  # both are pipes
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            await process.stdin.drain()
            line = await asyncio.wait_for(process.stdout.readline(), seconds)
        except TimeoutError:
            raise Unavailable(f"the dashboard did not answer within {seconds:g} s; try again") from None
        except ConnectionError:
            line = b""
        if not line:
            raise Unavailable("the dashboard has ended; the controller's log says why. Try again")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Unavailable(str(answer["error"]))
        return answer
