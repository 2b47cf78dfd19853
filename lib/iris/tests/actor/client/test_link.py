"""One connection to an actor's server, which is played: who is trusted, what is sent when, and how it ends."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from iris.actor.client.link import ACK_S, Link
from iris.actor.client.pending import PendingCall, Reply
from iris.actor.client.places import Place
from iris.actor.transport.handshake import Handshake
from iris.actor.transport.payload import INLINE_BYTES, WHOLE_BYTES, WINDOW_BYTES, Pickle, dump
from iris.actor.transport.wire import Envelope
from iris.rpc import actor_pb2 as pb
from iris.rpc.protocol import PROTOCOL_VERSION
from iris.testing.loops import run_in
from rigging.errors import Denied, Unavailable
from rigging.testing import eventually_async

KEY = b"k" * 32


class Stream:
    """The server's end of the stream."""

    def __init__(self) -> None:
        self.sent: list[Envelope[pb.ClientFrames]] = []
        self.half_closed = False
        self.is_done = False
        self.cancelled = False
        self.ended: tuple[grpc.StatusCode, str] = (grpc.StatusCode.UNAVAILABLE, "broken")
        self.changed = asyncio.Event()
        self._down: asyncio.Queue[Any] = asyncio.Queue()

    def say(self, blobs: Any = (), **frames: Any) -> None:
        self._down.put_nowait(Envelope(pb.ServerFrames(**frames), blobs))

    def end(self, code: grpc.StatusCode, details: str = "") -> None:
        self.is_done, self.ended = True, (code, details)
        self._down.put_nowait(grpc.aio.EOF)

    async def read(self) -> Any:
        return await self._down.get()

    async def write(self, envelope: Envelope[pb.ClientFrames]) -> None:
        if self.is_done:
            raise asyncio.InvalidStateError("RPC already finished.")
        self.sent.append(envelope)
        self.changed.set()

    async def done_writing(self) -> None:
        self.half_closed = True
        self.changed.set()

    def done(self) -> bool:
        return self.is_done

    async def code(self) -> grpc.StatusCode:
        return self.ended[0]

    async def details(self) -> str:
        return self.ended[1]

    def cancel(self) -> None:
        self.cancelled = True


class Channel:
    closed = False

    async def close(self) -> None:
        self.closed = True


class Calls:
    """The calls whose results the link brings."""

    def __init__(self) -> None:
        self.waiting: dict[int, PendingCall] = {}
        self.settled_: list[tuple[int, object]] = []
        self.is_leaving = False
        self.changed = asyncio.Event()

    def add(self, number: int, size: int = 10) -> PendingCall:
        call = PendingCall("add", Pickle(b"x" * size), None, 0, lambda: None)
        call.number = number
        self.waiting[number] = call
        return call

    def find(self, number: int) -> PendingCall | None:
        return self.waiting.get(number)

    def settled(self, call: PendingCall, reply: Reply) -> None:
        del self.waiting[call.number]
        self.settled_.append((call.number, reply.value()))
        self.changed.set()

    def leaving(self) -> bool:
        return self.is_leaving


class Bench:
    def __init__(self) -> None:
        self.stream, self.channel, self.calls = Stream(), Channel(), Calls()
        place = Place("h:1", "life", "counter")
        self.link = Link(place, "session", self.calls, KEY, lambda _: self.channel, lambda *_: self.stream)
        self.over = asyncio.Event()

    async def until_over(self) -> None:
        await self.over.wait()

    def run(self) -> "asyncio.Task[None]":
        return asyncio.create_task(self.link.run(self.until_over()))

    async def sent(self, condition: Callable[[pb.ClientFrames], Any]) -> pb.ClientFrames:
        """The first message that meets the condition."""
        while True:
            for envelope in self.stream.sent:
                if condition(envelope.message):
                    return envelope.message
            self.stream.changed.clear()
            await self.stream.changed.wait()

    async def all_settled(self, count: int) -> list[tuple[int, object]]:
        while len(self.calls.settled_) < count:
            self.calls.changed.clear()
            await self.calls.changed.wait()
        return self.calls.settled_


class NotingLoop(asyncio.SelectorEventLoop):
    """Keeps after how long the timers that were set are due."""

    def __init__(self) -> None:
        super().__init__()
        self.delays: list[float] = []

    def call_later(self, delay: float, *rest: Any, **options: Any) -> asyncio.TimerHandle:
        self.delays.append(delay)
        return super().call_later(delay, *rest, **options)


Play = Callable[..., None]


@pytest.fixture
def play() -> Play:
    def run(scenario: Callable[[Bench], Awaitable[None]], loop: NotingLoop | None = None) -> None:
        async def inner(_: NotingLoop) -> None:
            await asyncio.wait_for(scenario(Bench()), 60)

        run_in(loop or NotingLoop(), inner)

    return run


class TestTheHandshake:
    async def answer(self, bench: Bench, key: bytes) -> pb.ClientHello:
        hello = (await bench.sent(lambda message: message.HasField("hello"))).hello
        proof = Handshake(hello.nonce, b"s" * 32, "i1", hello.session).server_proof(key)
        bench.stream.say(challenge=pb.ServerChallenge(nonce=b"s" * 32, instance="i1", proof=proof))
        return hello

    def test_each_proves_the_key_and_says_what_it_knows(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            opening = asyncio.create_task(bench.link.open("a test", [4, 5]))
            hello = await self.answer(bench, KEY)
            assert (hello.caller, hello.session, hello.protocol_version) == ("a test", "session", PROTOCOL_VERSION)
            proof = (await bench.sent(lambda message: message.HasField("proof"))).proof
            assert proof.proof == Handshake(hello.nonce, b"s" * 32, "i1", "session").client_proof(KEY)
            assert list(proof.outstanding) == [4, 5]
            bench.stream.say(welcome=pb.ActorWelcome(known=[4], resumed=True))
            welcome = await opening
            assert (list(welcome.known), welcome.resumed) == ([4], True)

        play(scenario)

    def test_a_server_without_the_key_learns_nothing(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            opening = asyncio.create_task(bench.link.open("a test", [4]))
            await self.answer(bench, b"o" * 32)
            with pytest.raises(
                Denied, match="the server at h:1 is not one of this user's jobs: nothing was sent to it"
            ):
                await opening
            assert len(bench.stream.sent) == 1

        play(scenario)

    @pytest.mark.parametrize(
        ("code", "error"),
        [(grpc.StatusCode.OK, Unavailable), (grpc.StatusCode.PERMISSION_DENIED, grpc.aio.AioRpcError)],
    )
    def test_one_that_ends_it_is_told_apart(self, play: Play, code: grpc.StatusCode, error: type[Exception]) -> None:
        async def scenario(bench: Bench) -> None:
            bench.stream.end(code, "only jobs of the actor's own user")
            with pytest.raises(error) as raised:
                await bench.link.open("a test", [])
            if code is grpc.StatusCode.OK:
                assert str(raised.value) == "h:1 ended the connection"
            else:
                assert raised.value.code() is code  # type: ignore[attr-defined]

        play(scenario)


class TestCalls:
    def test_results_are_brought_and_acknowledged(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            running = bench.run()
            for number in (1, 2):
                bench.link.send(bench.calls.add(number))
            start = (await bench.sent(lambda message: message.starts)).starts[0]
            assert (start.call, start.actor, start.method) == (1, "counter", "add")
            attached = pb.CallEnd(call=2, attached=True)
            before = bench.link.last_word
            bench.stream.say([dump("two").whole], ends=[pb.CallEnd(call=1, inline=dump(7).whole), attached])
            assert await bench.all_settled(2) == [(1, 7), (2, "two")]
            assert bench.link.last_word > before
            acks = await bench.sent(lambda message: message.acks)
            assert list(acks.acks) == [1, 2], "together, a little later"
            bench.over.set()
            await running

        play(scenario)

    def test_a_large_result_is_put_together(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            running = bench.run()
            bench.link.send(bench.calls.add(1))
            data = bytes(dump("x" * 1000).whole)
            bench.stream.say(ends=[pb.CallEnd(call=1, size=len(data))])
            bench.stream.say([data[:500], b"late"], chunks=[pb.Chunk(call=1), pb.Chunk(call=9)])
            bench.stream.say([data[500:]], chunks=[pb.Chunk(call=1)])
            assert await bench.all_settled(1) == [(1, "x" * 1000)]
            bench.over.set()
            await running

        play(scenario)

    def test_a_result_that_nobody_waits_for_is_acknowledged_at_once(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            running = bench.run()
            bench.stream.say(ends=[pb.CallEnd(call=5, size=10**6)])
            assert list((await bench.sent(lambda message: message.acks)).acks) == [5]
            bench.over.set()
            await running

        play(scenario)

    def test_many_results_are_acknowledged_together(self, play: Play) -> None:
        """A timer for each would wake the loop as often as a message for each."""
        loop = NotingLoop()

        async def scenario(bench: Bench) -> None:
            running = bench.run()
            bench.stream.say(ends=[pb.CallEnd(call=number) for number in range(5, 9)])
            assert list((await bench.sent(lambda message: message.acks)).acks) == [5, 6, 7, 8]
            assert loop.delays.count(ACK_S) == 1
            bench.over.set()
            await running

        play(scenario, loop)

    def test_large_arguments_go_along_within_the_window_and_else_when_they_are_asked_for(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            def sent(size: int) -> bool:
                call = bench.calls.add(len(bench.calls.waiting) + 1, size)
                bench.link.send(call)
                return call.whole

            assert not sent(INLINE_BYTES), "it is part of the frame anyway"
            assert sent(INLINE_BYTES + 1)
            assert not sent(WHOLE_BYTES + 1)
            many = (WINDOW_BYTES - INLINE_BYTES - 1) // WHOLE_BYTES
            assert [sent(WHOLE_BYTES) for _ in range(many + 1)] == [True] * many + [False]
            bench.link.cancel(bench.calls.waiting[4])
            assert sent(WHOLE_BYTES), "what was taken back makes room"

        play(scenario)

    def test_an_end_makes_room_in_the_window(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            count = WINDOW_BYTES // WHOLE_BYTES
            for number in range(1, count + 1):
                bench.link.send(bench.calls.add(number, WHOLE_BYTES))
            blocked = bench.calls.add(100, WHOLE_BYTES)
            bench.link.send(blocked)
            assert not blocked.whole
            running = bench.run()
            bench.stream.say(ends=[pb.CallEnd(call=1, inline=dump(1).whole)])
            await bench.all_settled(1)
            after = bench.calls.add(101, WHOLE_BYTES)
            bench.link.send(after)
            assert after.whole
            bench.over.set()
            await running

        play(scenario)

    def test_arguments_are_sent_when_the_server_asks_for_them_and_count_as_sent_then(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            running = bench.run()
            call = bench.calls.add(1, WHOLE_BYTES + 1)
            bench.link.send(call)
            await bench.sent(lambda message: message.starts)
            assert not call.sent
            bench.stream.say(goes=[1, 77])
            await eventually_async(lambda: call.sent, "the last of them is sent")
            assert sum(len(envelope.message.chunks) for envelope in bench.stream.sent) == 5
            bench.over.set()
            await running

        play(scenario)

    def test_what_is_taken_back_is_said(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            running = bench.run()
            call = bench.calls.add(3)
            bench.link.cancel(call)
            assert list((await bench.sent(lambda message: message.cancels)).cancels) == [3]
            bench.over.set()
            await running

        play(scenario)

    def test_that_a_result_is_here_is_said_soon_though_there_is_nothing_else_to_say(self, play: Play) -> None:
        """Until then the server keeps the result."""

        async def scenario(bench: Bench) -> None:
            bench.link.ack_s = 0.001
            running = bench.run()
            for number in (1, 2, 3):
                bench.calls.add(number)
                bench.stream.say(ends=[pb.CallEnd(call=number, inline=dump(number).whole)])
                said = await bench.sent(lambda message, number=number: number in message.acks)
                assert (list(said.acks), list(said.starts)) == ([number], []), "nothing else went with it"
            bench.over.set()
            await running

        play(scenario)


class TestTheEnd:
    def test_a_broken_connection_is_raised(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            running = bench.run()
            bench.stream.end(grpc.StatusCode.UNAVAILABLE, "broken")
            with pytest.raises(grpc.aio.AioRpcError):
                await running

        play(scenario)

    def test_a_goodbye_is_the_reason(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            running = bench.run()
            bench.stream.say(goodbye="the actor was shut down")
            bench.stream.end(grpc.StatusCode.OK)
            with pytest.raises(Unavailable, match=r"^the actor was shut down$"):
                await running

        play(scenario)

    def test_one_that_nobody_needs_says_bye_before_it_goes(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            bench.calls.is_leaving = True
            running = bench.run()
            await asyncio.sleep(0)
            bench.over.set()
            await bench.sent(lambda message: message.bye)
            bench.stream.end(grpc.StatusCode.OK)
            with pytest.raises(Unavailable):
                await running
            assert bench.stream.half_closed

        play(scenario)

    def test_one_that_is_still_needed_does_not(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            running = bench.run()
            await asyncio.sleep(0)
            bench.over.set()
            await running
            assert not any(envelope.message.bye for envelope in bench.stream.sent)

        play(scenario)

    @pytest.mark.parametrize(("code", "has_all"), [(grpc.StatusCode.OK, True), (grpc.StatusCode.UNAVAILABLE, False)])
    @pytest.mark.parametrize("forget", [True, False])
    def test_a_last_word_is_delivered_when_the_server_ends_in_order(
        self, play: Play, code: grpc.StatusCode, has_all: bool, forget: bool
    ) -> None:
        async def scenario(bench: Bench) -> None:
            running = bench.run()
            bench.link.send(bench.calls.add(1))
            finishing = asyncio.create_task(bench.link.finish(forget))
            await bench.sent(lambda message: message.starts)
            while not bench.stream.half_closed:
                bench.stream.changed.clear()
                await bench.stream.changed.wait()
            assert any(envelope.message.bye for envelope in bench.stream.sent) == forget
            assert not finishing.done()
            bench.stream.end(code)
            assert await finishing is has_all
            with pytest.raises((Unavailable, grpc.aio.AioRpcError)):
                await running

        play(scenario)

    def test_letting_go_closes_all(self, play: Play) -> None:
        async def scenario(bench: Bench) -> None:
            await bench.link.close()
            assert (bench.stream.cancelled, bench.channel.closed) == (True, True)

        play(scenario)
