"""The caller's side of a connection to an actor's server."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, NoReturn, Protocol

import grpc
import grpc.aio

from iris.actor.client.pending import PendingCall, Reply
from iris.actor.client.places import Place
from iris.actor.transport.frame_queue import FrameQueue, Number
from iris.actor.transport.handshake import Handshake, new_nonce, same
from iris.actor.transport.payload import INLINE_BYTES, WHOLE_BYTES, WINDOW_BYTES, Assembly, Chunks
from iris.actor.transport.wire import Buffer, Envelope, next_blob, open_stream
from iris.rpc.generated import actor_pb2 as pb
from iris.rpc.protocol import CHANNEL_OPTIONS, PROTOCOL_VERSION
from rigging.errors import Denied, Unavailable

_HANDSHAKE_S: Final = 15.0
ACK_S: Final = 0.1
_LAST_WORDS_S: Final = 1.0

# Each connection has a socket of its own: another one's failures to connect must not make this one wait.
_OPTIONS: Final = (*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))


def _open_channel(address: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(address, options=_OPTIONS)


class Calls(Protocol):
    """The calls whose results a link delivers."""

    def find(self, number: int) -> PendingCall | None: ...

    def settled(self, call: PendingCall, reply: Reply) -> None: ...

    def leaving(self) -> bool:
        """Record that the connection closes. Return True if the caller wants no results and sends no more calls."""
        ...


class _Bye:
    def fill(self, envelope: Envelope[pb.ClientFrames]) -> int:
        envelope.message.bye = True
        return 8


_BYE: Final = _Bye()


class Link:
    """A single connection: `open`, `run`, `close`.

    Args:
        place: The actor's location.
        session: The caller's session.
        calls: The calls whose results the link delivers.
        key: The key of the actor's user.
        open_channel: Opens a channel to an address.
        open_call: Opens the stream on the channel.

    Attributes:
        last_word: When the server last sent a message, by `time.monotonic`.
        ack_s: Seconds within which a received result is acknowledged.
    """

    def __init__(
        self,
        place: Place,
        session: str,
        calls: Calls,
        key: bytes,
        open_channel: Callable[[str], Any] = _open_channel,
        open_call: Callable[[Any, bytes], Any] = open_stream,
    ) -> None:
        self.place = place
        self._session = session
        self._calls = calls
        self._loop = asyncio.get_running_loop()
        self._channel = open_channel(place.address)
        self._stream = open_call(self._channel, key)
        self._key = key
        self._frame_queue: FrameQueue[pb.ClientFrames] = FrameQueue(pb.ClientFrames)
        self._ack_timer: asyncio.TimerHandle | None = None
        self._goodbye = ""
        self._over = asyncio.Event()
        self._unasked: dict[int, int] = {}
        self.last_word = time.monotonic()
        self.ack_s = ACK_S

    async def open(self, whoami: str, outstanding: list[int]) -> pb.ActorWelcome:
        """Authenticate both sides.

        Raises:
            Denied: The server lacks the key, or refuses the caller's. AioRpcError, Unavailable: The connection failed.
        """
        try:
            async with asyncio.timeout(_HANDSHAKE_S):
                return await self._shake_hands(whoami, outstanding)
        except TimeoutError:
            raise Unavailable(f"{self.place.address} did not answer within {_HANDSHAKE_S:g} s") from None

    def send(self, call: PendingCall) -> None:
        """Send the call. The pickle of a large call follows when the server requests it."""
        call.actor = self.place.actor
        size = call.data.size
        call.whole = INLINE_BYTES < size <= WHOLE_BYTES and sum(self._unasked.values()) + size <= WINDOW_BYTES
        if call.whole:
            self._unasked[call.number] = size
        self._frame_queue.put(call)

    def cancel(self, call: PendingCall) -> None:
        self._unasked.pop(call.number, None)
        self._frame_queue.drop_stream(call.number)
        self._frame_queue.put(Number("cancels", call.number))

    def withdraw(self, call: PendingCall) -> None:
        """Ask the server to cancel the call unless it has started."""
        self._frame_queue.put(Number("withdrawals", call.number))

    async def finish(self, forget: bool) -> bool:
        """Send the queued frames, wait until the server closes the connection, and return whether it received all of
        them.

        Args:
            forget: Whether results are not wanted.
        """
        if forget:
            self._frame_queue.put(_BYE)
        self._frame_queue.close()
        await self._over.wait()
        return self._stream.done() and await self._stream.code() is grpc.StatusCode.OK

    async def run(self, over: Coroutine[Any, Any, None]) -> None:
        """Serve until `over` returns. Raise if the connection breaks."""
        work = [self._loop.create_task(part) for part in (self._read(), self._write())]
        tasks = [*work, self._loop.create_task(over)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            try:
                if not any(part.done() for part in work) and self._calls.leaving():
                    # Before the reader is cancelled: that ends the stream at once, and the server hears nothing more.
                    self._frame_queue.put(_BYE)
                    self._frame_queue.close()
                    await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED, timeout=_LAST_WORDS_S)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                errors = [error for task in tasks if not task.cancelled() and (error := task.exception()) is not None]
                self._over.set()
        for error in errors:
            raise error
        if self._goodbye:
            raise Unavailable(self._goodbye)

    async def close(self) -> None:
        """Release the connection."""
        self._stream.cancel()
        await self._channel.close()

    async def _shake_hands(self, whoami: str, outstanding: list[int]) -> pb.ActorWelcome:
        nonce = new_nonce()
        hello = pb.ClientHello(protocol_version=PROTOCOL_VERSION, nonce=nonce, session=self._session, caller=whoami)
        await self._send(Envelope(pb.ClientFrames(hello=hello)))
        challenge = (await self._receive()).message.challenge
        handshake = Handshake(nonce, challenge.nonce, challenge.instance, self._session)
        if not same(challenge.proof, handshake.server_proof(self._key)):
            raise Denied(f"the server at {self.place.address} is not one of this user's jobs: nothing was sent to it")
        proof = pb.ClientProof(proof=handshake.client_proof(self._key), outstanding=outstanding)
        await self._send(Envelope(pb.ClientFrames(proof=proof)))
        return (await self._receive()).message.welcome

    async def _send(self, envelope: Envelope[pb.ClientFrames]) -> None:
        try:
            await self._stream.write(envelope)
        except asyncio.InvalidStateError:
            await self._raise_end()

    async def _receive(self) -> Envelope[pb.ServerFrames]:
        envelope = await self._stream.read()
        if not isinstance(envelope, Envelope):
            await self._raise_end()
        return envelope

    async def _raise_end(self) -> NoReturn:
        """Raise the error that ended the stream."""
        code, details = await self._stream.code(), await self._stream.details()
        if code is grpc.StatusCode.OK:
            raise Unavailable(self._goodbye or f"{self.place.address} ended the connection")
        raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)

    async def _write(self) -> None:
        while (envelope := await self._frame_queue.next()) is not None:
            await self._send(envelope)
        await self._stream.done_writing()
        await self._loop.create_future()  # the server ends the connection, when it has it all

    async def _read(self) -> None:
        while True:
            envelope = await self._receive()
            message, blobs = envelope.message, iter(envelope.blobs)
            self.last_word = time.monotonic()
            for number in message.goes:
                self._send_pickle(number)
            for number in message.begun:
                if (call := self._calls.find(number)) is not None:
                    call.answer_withdrawal(False)
            for end in message.ends:
                self._end(end, next_blob(blobs) if end.attached else end.inline)
            for chunk in message.chunks:
                self._add(chunk.call, next_blob(blobs))
            if message.goodbye:
                self._goodbye = message.goodbye

    def _send_pickle(self, number: int) -> None:
        call = self._calls.find(number)
        if call is not None:
            self._frame_queue.stream(Chunks(number, call.data), call.mark_sent)

    def _end(self, end: pb.CallEnd, data: Buffer) -> None:
        self._unasked.pop(end.call, None)
        call = self._calls.find(end.call)
        if call is None or not end.size:
            self._acknowledge(end.call)
            if call is not None:
                self._calls.settled(call, Reply(end, data))
            return
        call.end, call.assembly = end, Assembly(end.size)

    def _add(self, number: int, piece: Buffer) -> None:
        call = self._calls.find(number)
        if call is None or call.assembly is None or call.end is None:
            return  # its caller has gone
        if call.assembly.add(piece):
            self._acknowledge(number)
            self._calls.settled(call, Reply(call.end, call.assembly.data))

    def _acknowledge(self, number: int) -> None:
        # In no hurry: it goes along with the next call, or by itself a little later.
        self._frame_queue.put(Number("acks", number), hurry=False)
        if self._ack_timer is None:
            self._ack_timer = self._loop.call_later(self.ack_s, self._flush_acks)

    def _flush_acks(self) -> None:
        self._ack_timer = None
        self._frame_queue.wake()
