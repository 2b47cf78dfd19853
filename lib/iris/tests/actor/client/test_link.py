"""One connection to an actor's server, which is played: who is trusted, what is sent when, and how it ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from fray.testing.waiting import eventually_async
from iris.actor.client.link import Link
from iris.actor.client.pending import PendingCall, Reply
from iris.actor.client.places import Place
from iris.actor.transport.handshake import Handshake
from iris.actor.transport.payload import INLINE_BYTES, WHOLE_BYTES, WINDOW_BYTES, Pickle, dump
from iris.actor.transport.wire import Envelope
from iris.rpc.generated import actor_pb2 as pb
from rigging.errors import Denied, Unavailable

KEY = b"k" * 32


class Stream:
    """The server's end of the stream, and the channel."""

    def __init__(self) -> None:
        self.sent: list[Envelope[pb.ClientFrames]] = []
        self.half_closed = self.is_done = self.cancelled = self.closed = False
        self.ended: tuple[grpc.StatusCode, str] = (grpc.StatusCode.UNAVAILABLE, "broken")
        self._down: asyncio.Queue[Any] = asyncio.Queue()

    def say(self, *blobs: Any, **frames: Any) -> None:
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

    async def done_writing(self) -> None:
        self.half_closed = True

    def done(self) -> bool:
        return self.is_done

    async def code(self) -> grpc.StatusCode:
        return self.ended[0]

    async def details(self) -> str:
        return self.ended[1]

    def cancel(self) -> None:
        self.cancelled = True

    async def close(self) -> None:
        self.closed = True


class Calls:
    """The calls whose results the link brings."""

    def __init__(self) -> None:
        self.waiting: dict[int, PendingCall] = {}
        self.results: list[tuple[int, object]] = []
        self.is_leaving = False

    def add(self, number: int, size: int = 10) -> PendingCall:
        call = PendingCall("add", Pickle(b"x" * size), None, 0, lambda: None)
        call.number = number
        self.waiting[number] = call
        return call

    def find(self, number: int) -> PendingCall | None:
        return self.waiting.get(number)

    def settled(self, call: PendingCall, reply: Reply) -> None:
        del self.waiting[call.number]
        self.results.append((call.number, reply.value()))

    def leaving(self) -> bool:
        return self.is_leaving


class Bench:
    def __init__(self) -> None:
        self.stream, self.calls = Stream(), Calls()
        place = Place("h:1", "life", "counter")
        self.link = Link(place, "session", self.calls, KEY, lambda _: self.stream, lambda *_: self.stream)
        self.over = asyncio.Event()

    async def until_over(self) -> None:
        await self.over.wait()

    def run(self) -> "asyncio.Task[None]":
        return asyncio.create_task(self.link.run(self.until_over()))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """A connection that serves until the block ends."""
        serving = self.run()
        yield
        self.over.set()
        await serving

    async def sent(self, condition: Callable[[pb.ClientFrames], Any]) -> pb.ClientFrames:
        """The first message that meets the condition."""
        first = await eventually_async(
            lambda: next((each for each in self.stream.sent if condition(each.message)), None), "it is sent"
        )
        assert first is not None
        return first.message

    async def all_settled(self, *results: tuple[int, object]) -> None:
        await eventually_async(lambda: self.calls.results == list(results), f"the results are {results}")


@pytest.fixture
def bench(runner: asyncio.Runner) -> Bench:
    async def made() -> Bench:
        return Bench()

    return runner.run(made())


class TestTheHandshake:
    async def test_a_server_without_the_key_learns_nothing(self, bench: Bench) -> None:
        opening = asyncio.create_task(bench.link.open("a test", [4]))
        hello = (await bench.sent(lambda message: message.HasField("hello"))).hello
        proof = Handshake(hello.nonce, b"s" * 32, "i1", hello.session).server_proof(b"o" * 32)
        bench.stream.say(challenge=pb.ServerChallenge(nonce=b"s" * 32, instance="i1", proof=proof))
        text = "the server at h:1 is not one of this user's jobs: nothing was sent to it"
        with pytest.raises(Denied, match=text):
            await opening
        assert len(bench.stream.sent) == 1

    @pytest.mark.parametrize(
        ("code", "error", "text"),
        [
            (grpc.StatusCode.OK, Unavailable, "h:1 ended the connection"),
            (grpc.StatusCode.PERMISSION_DENIED, grpc.aio.AioRpcError, "StatusCode.PERMISSION_DENIED"),
        ],
        ids=["in order", "refused"],
    )
    async def test_one_that_ends_it_is_told_apart(
        self, bench: Bench, code: Any, error: type[Exception], text: str
    ) -> None:
        bench.stream.end(code, "only jobs of the actor's own user")
        with pytest.raises(error, match=text):
            await bench.link.open("a test", [])


class TestCalls:
    async def test_results_are_brought_and_acknowledged_together_a_little_later(self, bench: Bench) -> None:
        async with bench.running():
            for number in (1, 2):
                bench.link.send(bench.calls.add(number))
            start = (await bench.sent(lambda message: message.starts)).starts[0]
            assert (start.call, start.actor, start.method) == (1, "counter", "add")
            before = bench.link.last_word
            small, attached = pb.CallEnd(call=1, inline=dump(7).whole), pb.CallEnd(call=2, attached=True)
            unknown = pb.CallEnd(call=5, size=10**6)
            bench.stream.say(dump("two").whole, ends=[small, attached, unknown])
            await bench.all_settled((1, 7), (2, "two"))
            assert bench.link.last_word > before
            acks = await bench.sent(lambda message: message.acks)
            assert list(acks.acks) == [1, 2, 5], "one that nobody waits for is not asked for"

    async def test_large_arguments_go_along_within_the_window_and_else_when_they_are_asked_for(
        self, bench: Bench
    ) -> None:
        numbers = iter(range(1, 100))

        def sent(size: int) -> bool:
            call = bench.calls.add(next(numbers), size)
            bench.link.send(call)
            return call.whole

        assert not sent(INLINE_BYTES), "it is part of the frame anyway"
        assert sent(INLINE_BYTES + 1)
        assert not sent(WHOLE_BYTES + 1)
        many = (WINDOW_BYTES - INLINE_BYTES - 1) // WHOLE_BYTES
        assert [sent(WHOLE_BYTES) for _ in range(many + 1)] == [True] * many + [False]
        bench.link.cancel(bench.calls.waiting[4])
        assert [sent(WHOLE_BYTES) for _ in range(2)] == [True, False], "what was taken back makes room"
        async with bench.running():
            bench.stream.say(ends=[pb.CallEnd(call=5, inline=dump(1).whole)])
            await bench.all_settled((5, 1))
            assert [sent(WHOLE_BYTES) for _ in range(2)] == [True, False], "and so does what has ended"

    async def test_a_large_result_is_put_together_and_acknowledged(self, bench: Bench) -> None:
        async with bench.running():
            bench.link.send(bench.calls.add(1))
            data = bytes(dump("x" * 1000).whole)
            bench.stream.say(ends=[pb.CallEnd(call=1, size=len(data))])
            bench.stream.say(data[:500], b"late", chunks=[pb.Chunk(call=1), pb.Chunk(call=9)])
            bench.stream.say(data[500:], chunks=[pb.Chunk(call=1)])
            await bench.all_settled((1, "x" * 1000))
            await bench.sent(lambda message: list(message.acks) == [1])

    async def test_arguments_that_the_server_asks_for_count_as_sent_with_the_last_of_them(self, bench: Bench) -> None:
        async with bench.running():
            call = bench.calls.add(1, WHOLE_BYTES + 1)
            bench.link.send(call)
            await bench.sent(lambda message: message.starts)
            assert not call.sent
            bench.stream.say(goes=[1, 77])
            await eventually_async(lambda: call.sent, "the last of them is sent")
            assert sum(len(envelope.message.chunks) for envelope in bench.stream.sent) == 5

    async def test_that_a_result_is_here_is_said_soon_though_there_is_nothing_else_to_say(self, bench: Bench) -> None:
        """Until then the server keeps the result."""
        bench.link.ack_s = 0.001
        async with bench.running():
            for number in (1, 2, 3):
                bench.calls.add(number)
                bench.stream.say(ends=[pb.CallEnd(call=number, inline=dump(number).whole)])
                said = await bench.sent(lambda message, number=number: number in message.acks)
                assert (list(said.acks), list(said.starts)) == ([number], []), "nothing else went with it"


class TestTheEnd:
    @pytest.mark.parametrize(
        ("goodbye", "code", "error", "text"),
        [
            ("", grpc.StatusCode.UNAVAILABLE, grpc.aio.AioRpcError, "broken"),
            ("the actor was shut down", grpc.StatusCode.OK, Unavailable, "^the actor was shut down$"),
        ],
        ids=["broken", "goodbye"],
    )
    async def test_why_a_connection_ended_is_raised(
        self, bench: Bench, goodbye: str, code: Any, error: type[Exception], text: str
    ) -> None:
        running = bench.run()
        bench.stream.say(goodbye=goodbye)
        bench.stream.end(code, "broken")
        with pytest.raises(error, match=text):
            await running

    @pytest.mark.parametrize("is_leaving", [True, False])
    async def test_one_that_nobody_needs_says_bye_before_it_goes(self, bench: Bench, is_leaving: bool) -> None:
        bench.calls.is_leaving = is_leaving
        running = bench.run()
        await asyncio.sleep(0)
        bench.over.set()
        if is_leaving:
            await bench.sent(lambda message: message.bye)
            bench.stream.end(grpc.StatusCode.OK)
            with pytest.raises(Unavailable):
                await running
        else:
            await running
        assert any(envelope.message.bye for envelope in bench.stream.sent) == is_leaving
        assert bench.stream.half_closed == is_leaving

    @pytest.mark.parametrize(("code", "has_all"), [(grpc.StatusCode.OK, True), (grpc.StatusCode.UNAVAILABLE, False)])
    @pytest.mark.parametrize("forget", [True, False])
    async def test_a_last_word_is_delivered_when_the_server_ends_in_order(
        self, bench: Bench, code: grpc.StatusCode, has_all: bool, forget: bool
    ) -> None:
        running = bench.run()
        bench.link.send(bench.calls.add(1))
        finishing = asyncio.create_task(bench.link.finish(forget))
        await bench.sent(lambda message: message.starts)
        await eventually_async(lambda: bench.stream.half_closed, "there is no more to say")
        assert any(envelope.message.bye for envelope in bench.stream.sent) == forget
        assert not finishing.done()
        bench.stream.end(code)
        assert await finishing is has_all
        with pytest.raises((Unavailable, grpc.aio.AioRpcError)):
            await running

    async def test_letting_go_closes_all(self, bench: Bench) -> None:
        await bench.link.close()
        assert (bench.stream.cancelled, bench.stream.closed) == (True, True)
