"""Keeps a worker connected to its controller: connects, runs a session, reconnects."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from enum import StrEnum
from typing import Any, Protocol

from iris.rpc.auth import CREDENTIAL_PREFIX, Unauthenticated
from iris.rpc.controller_address import ControllerAddress
from iris.worker.attempts.supervisor import Supervisor
from iris.worker.connection.session import AgentSession, GrpcControllerLink, Incompatible, SessionEnd, WorkerIdentity
from iris.worker.connection.socket_call import SocketCall
from iris.worker.guardian.protocol import boot_ms
from iris.worker.host.disk_offer import CapacityOffer
from rigging.errors import MarinError, Unavailable
from rigging.timing import ExponentialBackoff

logger = logging.getLogger(__name__)


Resolver = Callable[[], ControllerAddress]
"""Finds the controller before every connection. Raises MarinError while there is none."""


class ControllerLink(Protocol):
    """A connection to one controller."""

    address: str

    def open_session(self) -> Any:
        """Open a stream like that of grpc.aio, for `Session`."""
        ...

    def fetch(self, digests: list[str]) -> AsyncIterator[tuple[str, int, bytes, bool]]: ...

    async def upload(self, digest: str, data: bytes) -> None: ...

    async def close(self) -> None: ...


class AgentEnd(StrEnum):
    """Why the agent returned."""

    GOODBYE = "the controller told the worker to exit"
    LEFT = "the worker shut down"
    ORPHANED = "no controller was found and no task was running"
    INCOMPATIBLE = "the controller uses another protocol version"
    REFUSED = "the controller refuses this worker"


class Agent:
    """The worker's side of the worker protocol, over any number of sessions. Also fetches and uploads blobs.

    Args:
        orphan_timeout_s: Return after this time without a controller, unless an attempt is live.
        open_link: Opens the connection to a controller.
        contact_clock: Returns the time of a heartbeat, like `guardian.protocol.boot_ms`.
        offer: Returns the resources currently offered; None if those of `identity` do not change.
    """

    def __init__(
        self,
        identity: WorkerIdentity,
        resolve: Resolver,
        orphan_timeout_s: float = 60.0,
        backoff: ExponentialBackoff | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        open_link: Callable[[ControllerAddress], ControllerLink] = GrpcControllerLink,
        contact_clock: Callable[[], int] = boot_ms,
        offer: CapacityOffer | None = None,
    ) -> None:
        self._offer = offer or CapacityOffer(identity.capacity)
        self._identity = identity
        self._resolve = resolve
        self._orphan_timeout_s = orphan_timeout_s
        self._backoff = backoff or ExponentialBackoff(initial=0.02, maximum=1.0, factor=1.6, jitter=0.2)
        self._monotonic = monotonic
        self._open_link = open_link
        self._contact_clock = contact_clock
        self._link: ControllerLink | None = None
        self._session: AgentSession | None = None
        self._welcomed = asyncio.Event()
        self._leaving = False
        self._last_complaint = ""
        self.on_exec: Callable[[str, ControllerAddress | None], None] = lambda *_: None
        """Called with the id of a command in an attempt, and its controller; None if its caller has gone."""

    def address(self) -> str:
        """Return the controller's address for tasks; empty before the first connection."""
        return self._link.address if self._link is not None else ""

    async def fetch(self, digests: list[str]) -> AsyncIterator[tuple[str, int, bytes, bool]]:
        """Yield chunks of blobs from the controller (`bundle.BlobSource`). Raises MarinError."""
        if self._link is None:
            raise Unavailable("there is no connection to the controller")
        async for chunk in self._link.fetch(digests):
            yield chunk

    async def upload(self, digest: str, data: bytes) -> None:
        """Store a blob at the controller. Raises MarinError.

        Args:
            digest: The blob's SHA-256 in hex.
            data: The blob's complete content.
        """
        if self._link is None:
            raise Unavailable("there is no connection to the controller")
        await self._link.upload(digest, data)

    async def run(self, supervisor: Supervisor) -> AgentEnd:
        """Run sessions until the controller ends the agent, `leave` is called, or the orphan timeout expires."""
        alone_since = self._monotonic()
        while True:
            end = await self._serve(supervisor)
            self._welcomed.clear()
            if self._leaving:
                return AgentEnd.LEFT
            if end is not None:
                return end
            if (self._session is not None and self._session.welcomed) or supervisor.live_count:
                alone_since = self._monotonic()
            if self._session is not None and self._session.welcomed:
                self._backoff.reset()
            self._session = None
            if self._monotonic() - alone_since > self._orphan_timeout_s:
                return AgentEnd.ORPHANED
            await asyncio.sleep(self._backoff.next_interval())

    async def leave(self) -> None:
        """Send the remaining reports and make `run` return. Without a session this waits for the next one."""
        await self._welcomed.wait()
        self._leaving = True
        if self._session is not None:
            await self._session.leave()

    async def close(self) -> None:
        """Close the connection."""
        if self._link is not None:
            await self._link.close()

    async def _serve(self, supervisor: Supervisor) -> AgentEnd | None:
        """Run one session; return None to reconnect."""
        is_credential = False
        try:
            address = self._resolve()
            is_credential = address.token.startswith(CREDENTIAL_PREFIX)
            if self._link is not None:
                await self._link.close()
            self._link = self._open_link(address)
            call = await self._open_session(address, self._link)
            self._session = AgentSession(
                call,
                self._identity,
                supervisor,
                self._contact_clock,
                self._offer,
                self._welcomed.set,
                lambda exec_id, is_new: self.on_exec(exec_id, address if is_new else None),
            )
            end = await self._session.run()
        except Incompatible as error:
            logger.error("%s", error)
            return AgentEnd.INCOMPATIBLE
        except MarinError as error:
            if not self._leaving:
                self._complain(str(error))
            if isinstance(error, Unauthenticated) and is_credential and not supervisor.live_count:
                # What still runs here is not given up for a controller that knows less than it should.
                return AgentEnd.REFUSED
            return None
        self._last_complaint = ""
        return AgentEnd.GOODBYE if end is SessionEnd.EXIT else None

    async def _open_session(self, address: ControllerAddress, link: ControllerLink) -> Any:
        """Open the stream through the socket, or through gRPC if there is none."""
        if address.socket:
            with contextlib.suppress(OSError):
                return await SocketCall.connect(address.socket, address.token)
        return link.open_session()

    def _complain(self, text: str) -> None:
        if text != self._last_complaint:  # the same line every second does not help
            logger.warning("cannot open a session with the controller: %s", text)
        self._last_complaint = text


async def cancel_and_wait(task: "asyncio.Task[AgentEnd]") -> None:
    """Cancel `task` and return when it has ended."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
