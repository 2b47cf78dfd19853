"""ActorService: the connections of one server, and the sessions, which outlive connections."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from iris.actor.server.hosted import HostedActor, HostedCall
from iris.actor.server.session import CallerSession, MemoryBudget
from iris.actor.transport.frame_queue import FrameQueue, Handoff
from iris.actor.transport.handshake import PASS_KEY, Handshake, is_pass, new_nonce, same
from iris.actor.transport.wire import Envelope, unpack_client
from iris.rpc.generated import actor_pb2 as pb
from iris.rpc.protocol import PROTOCOL_VERSION

logger = logging.getLogger(__name__)

_HANDSHAKE_S: Final = 15.0
_UNKNOWN_AT_ONCE: Final = 2
_UNPROVED_BYTES: Final = 128 * 1024
"""Maximum size of a message before authentication: up to ten bytes for the number of each call that a client may
have.
"""

Context = Any  # grpc's own, which is untyped here


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """The load of a server: sessions, and bytes of queued large arguments."""

    sessions: int
    waiting_bytes: int


class ActorService:
    """Serves callers that have the key.

    Args:
        key: The key for mutual authentication.
        actors: The actors by name. More may be added later.
        memory_bytes: Maximum size of queued large arguments.
        session_timeout_s: How long a client may be disconnected before its calls and results are dropped.
    """

    def __init__(
        self,
        instance: str,
        key: bytes,
        actors: Mapping[str, HostedActor],
        memory_bytes: int,
        session_timeout_s: float,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._instance = instance
        self._key = key
        self._actors = actors
        self._session_timeout_s = session_timeout_s
        self._sessions: dict[str, CallerSession] = {}
        self._admission = MemoryBudget(memory_bytes)
        self._frame_queues: set[FrameQueue[pb.ServerFrames]] = set()
        self._all_closed = asyncio.Event()
        self._all_closed.set()
        self._loop = loop
        self._unknown = asyncio.Semaphore(_UNKNOWN_AT_ONCE)
        self._stopped = ""
        self.handshake_s = _HANDSHAKE_S
        self.finished: Handoff[HostedCall] = Handoff(loop, lambda call: call.owner.finish(call))
        self.begun: Handoff[HostedCall] = Handoff(loop, lambda call: call.owner.release(call))

    async def connect(self, _: object, context: Context) -> None:
        """Serve one connection to its end."""
        try:
            async with asyncio.timeout(self.handshake_s):
                async with await self._turn(context):
                    hello, proof = await self._shake_hands(context)
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no handshake in time")
        frame_queue: FrameQueue[pb.ServerFrames] = FrameQueue(pb.ServerFrames)
        resumed = hello.session in self._sessions
        session = self._open(hello)
        known = session.attach(frame_queue, list(proof.outstanding))
        visits = session.visits
        try:
            await context.write(Envelope(pb.ServerFrames(welcome=pb.ActorWelcome(known=known, resumed=resumed))))
            await self._converse(session, frame_queue, context)
        finally:
            session.detach(frame_queue)
            if self._sessions.get(session.session_id) is session:
                self._loop.call_later(self._session_timeout_s, self._expire, session, visits)

    async def _turn(self, context: Context) -> "contextlib.AbstractAsyncContextManager[object]":
        """Context manager for reading messages of an unauthenticated caller, one caller at a time, because gRPC buffers
        each message completely.
        """
        shown = dict(context.invocation_metadata() or ()).get(PASS_KEY, "")
        if isinstance(shown, str) and is_pass(shown, self._key):
            return contextlib.nullcontext()
        # Unverified callers. Their connections are not kept waiting either: what they send would fill buffers.
        if self._unknown.locked():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "too many callers of whom nothing is known; try again")
        return self._unknown

    async def _converse(
        self, session: CallerSession, frame_queue: "FrameQueue[pb.ServerFrames]", context: Context
    ) -> None:
        self._frame_queues.add(frame_queue)
        self._all_closed.clear()
        reader = asyncio.create_task(self._read(session, frame_queue, context))
        writer = asyncio.create_task(_write(frame_queue, context))
        try:
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._frame_queues.discard(frame_queue)
            if not self._frame_queues:
                self._all_closed.set()
            for task in (reader, writer):
                task.cancel()
            await asyncio.wait((reader, writer))
            for task in (reader, writer):
                if not task.cancelled():
                    task.exception()  # the connection is over, whatever ended it

    @property
    def load(self) -> ServerLoad:
        return ServerLoad(len(self._sessions), self._admission.used)

    def refuse_new(self, reason: str) -> None:
        """Refuse all calls that have not started, and all later ones."""
        self._stopped = reason
        for session in self._sessions.values():
            session.stop()

    async def say_goodbye(self) -> None:
        """Close the connections after they have received the finished results."""
        for frame_queue in list(self._frame_queues):
            frame_queue.put(_Goodbye(self._stopped))
            frame_queue.close()
        await self._all_closed.wait()

    async def _shake_hands(self, context: Context) -> tuple[pb.ClientHello, pb.ClientProof]:
        first = await _receive_unproved(context)
        if first is None or not first.hello.session:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a connection begins with hello")
        assert first is not None
        hello = first.hello
        if hello.protocol_version != PROTOCOL_VERSION:
            versions = f"the caller speaks protocol version {hello.protocol_version}, the actor {PROTOCOL_VERSION}"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{versions}: use one release of iris")
        handshake = Handshake(hello.nonce, new_nonce(), self._instance, hello.session)
        if not handshake.is_fresh:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the nonce of hello has the wrong size")
        challenge = pb.ServerChallenge(
            nonce=handshake.server_nonce, instance=self._instance, proof=handshake.server_proof(self._key)
        )
        await context.write(Envelope(pb.ServerFrames(challenge=challenge)))
        second = await _receive_unproved(context)
        if second is None:
            # It found that this is not the server it looks for.
            await context.abort(grpc.StatusCode.CANCELLED, "the caller left")
        assert second is not None
        if not same(second.proof.proof, handshake.client_proof(self._key)):
            logger.warning("refused a caller that calls itself %.200r: it does not hold this user's key", hello.caller)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "only jobs of the actor's own user may call it")
        if self._stopped:
            await context.abort(grpc.StatusCode.UNAVAILABLE, self._stopped)
        return hello, second.proof

    def _open(self, hello: pb.ClientHello) -> CallerSession:
        session = self._sessions.get(hello.session)
        if session is None:
            session = CallerSession(hello.session, hello.caller, self._actors, self._admission)
            self._sessions[hello.session] = session
        return session

    async def _read(self, session: CallerSession, frame_queue: "FrameQueue[pb.ServerFrames]", context: Context) -> None:
        while (envelope := await _receive(context)) is not None:
            if session.frame_queue is not frame_queue:
                return  # another connection has come, which said anew what was not here; this came late
            session.take(envelope)
            if envelope.message.bye:
                # What it sent is run; the results are not asked for.
                self._sessions.pop(session.session_id, None)
                return

    def _expire(self, session: CallerSession, visits: int) -> None:
        if session.visits != visits or self._sessions.get(session.session_id) is not session:
            return  # it came back; if it left again, another timer runs
        logger.warning("forgot the calls of %.200s, which was away for too long", session.caller)
        del self._sessions[session.session_id]
        session.refuse_all(pb.REFUSAL_CANCELLED)


class _Goodbye:
    def __init__(self, reason: str) -> None:
        self._reason = reason

    def fill(self, envelope: Envelope[pb.ServerFrames]) -> int:
        envelope.message.goodbye = self._reason
        return 64


async def _receive(context: Context) -> Envelope[pb.ClientFrames] | None:
    """Return the next message; None at the end of the stream."""
    data = await context.read()
    return unpack_client(data) if isinstance(data, bytes) else None


async def _receive_unproved(context: Context) -> pb.ClientFrames | None:
    """Return the next message of an unauthenticated caller; None if it has disconnected. The cost is bounded for any
    size.
    """
    data = await context.read()
    if not isinstance(data, bytes):
        return None
    if len(data) > _UNPROVED_BYTES:
        text = f"{len(data)} bytes before the proof of the key, where {_UNPROVED_BYTES} are allowed"
        del data  # the error's traceback holds this frame for a while
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
    try:
        message = pb.ClientFrames.FromString(data)
    except DecodeError:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not a message of a connection of this release of iris")
    if message.blobs:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "blobs before the proof of the key")
    return message


async def _write(frame_queue: "FrameQueue[pb.ServerFrames]", context: Context) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        while (envelope := await frame_queue.next()) is not None:
            await context.write(envelope)
