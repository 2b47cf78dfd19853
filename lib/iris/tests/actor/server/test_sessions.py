"""Clients that leave and come back: every call runs once and in its order, every result comes once and whole."""

import os
import queue
import secrets
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from iris.actor import ActorClient, ActorServer
from iris.actor.server.service import ActorService
from iris.actor.transport.handshake import Handshake, new_nonce
from iris.actor.transport.payload import dump_arguments
from iris.actor.transport.wire import unpack_server
from iris.rpc import actor_pb2 as pb
from iris.rpc.protocol import CHANNEL_OPTIONS, PROTOCOL_VERSION
from iris.testing.proxy import TcpProxy, tcp_proxy
from rigging.errors import Conflict, InvalidRequest
from rigging.testing import eventually, eventually_async

WAIT_S = 30.0
KEY = b"k" * 32


class Line:
    """One connection of a client that says just what the test wants, in the order in which the test wants it."""

    def __init__(self, address: str, session: str, outstanding: tuple[int, ...] = ()) -> None:
        options = (*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))
        self._channel = grpc.insecure_channel(address, options=options)
        self._said: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.heard = self._channel.stream_stream("/iris.v1.ActorService/Connect")(iter(self._said.get, None))
        nonce = new_nonce()
        hello = pb.ClientHello(protocol_version=PROTOCOL_VERSION, nonce=nonce, session=session, caller="a test")
        self.say(hello=hello)
        challenge = self.hear().challenge
        handshake = Handshake(nonce, challenge.nonce, challenge.instance, session)
        self.say(proof=pb.ClientProof(proof=handshake.client_proof(KEY), outstanding=outstanding))
        self.welcome = self.hear().welcome

    def say(self, **frames: Any) -> None:
        self._said.put(pb.ClientFrames(**frames).SerializeToString())

    def hear(self) -> pb.ServerFrames:
        return unpack_server(next(self.heard)).message

    def hear_end(self, number: int) -> pb.CallEnd:
        """The end of a call, with what comes before it thrown away."""
        while True:
            for end in self.hear().ends:
                if end.call == number:
                    return end

    def close(self) -> None:
        self.heard.cancel()
        self._channel.close()


Dial = Callable[..., Line]


@pytest.fixture
def dial(server: ActorServer) -> Iterator[Dial]:
    """Connections of one session: `dial(*outstanding)`."""
    session = secrets.token_hex(16)
    made: list[Line] = []

    def make(*outstanding: int, address: str = server.address, session: str = session) -> Line:
        made.append(Line(address, session, outstanding))
        return made[-1]

    yield make
    for line in made:
        line.close()


@pytest.fixture
def through(through: ActorClient) -> ActorClient:
    """Connected already."""
    through.echo()
    return through


def start(number: int, method: str, *args: Any, **more: Any) -> pb.CallStart:
    inline = bytes(dump_arguments(args, {}).whole)
    return pb.CallStart(call=number, actor="bench", method=method, inline=inline, **more)


class SlowWelcome:
    """What a connection is served by, with welcomes that go out when the test says so, or never."""

    def __init__(self, context: Any, writing: threading.Event, go: threading.Event | None) -> None:
        self._context = context
        self._writing = writing
        self._go = go

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def write(self, envelope: Any) -> None:
        if envelope.message.HasField("welcome"):
            self._writing.set()
            if self._go is None:
                raise ConnectionResetError("the client is gone")
            await eventually_async(self._go.is_set, "the test lets the welcome go")
        await self._context.write(envelope)


def slow_welcomes(monkeypatch: pytest.MonkeyPatch, go: threading.Event | None) -> threading.Event:
    """Make all welcomes wait for `go`; return what tells that one does."""
    writing = threading.Event()
    serve = ActorService.connect

    async def connect(self: ActorService, request: object, context: Any) -> None:
        await serve(self, request, SlowWelcome(context, writing, go))

    monkeypatch.setattr(ActorService, "connect", connect)
    return writing


def test_a_large_result_that_ends_while_its_client_is_welcomed_comes_once_and_whole(
    bench: Any, connect: Callable[..., ActorClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(3 * 1024 * 1024 - 57)

    kind = type("Maker", (type(bench),), {"wait_and_make": lambda self: (self.wait(), data)[1]})
    maker = kind()
    go = threading.Event()
    go.set()
    writing = slow_welcomes(monkeypatch, go)
    with ActorServer(key=KEY) as server, tcp_proxy(server.address) as proxy:
        server.register("bench", maker)
        away, here = connect(proxy.address), connect(server.address)
        here.echo()
        call = away.wait_and_make.remote()
        eventually(lambda: maker.inside, "it is inside")
        go.clear()
        writing.clear()
        proxy.cut()
        assert writing.wait(WAIT_S)
        maker.gate.set()
        here.echo()  # behind it in the actor's queue, and on the way back to the server's loop
        go.set()
        assert call.result(WAIT_S) == data


def test_what_comes_late_by_a_replaced_connection_is_not_heard(dial: Dial, bench: Any) -> None:
    old = dial()
    old.say(starts=[start(1, "make", 50_000_000)])
    assert old.hear_end(1).size > 50_000_000
    # It reads no further, so the server is held up while it writes, and cannot end this connection.
    new = dial(1)
    old.say(starts=[start(2, "note", "late")], bye=True)
    for number in range(3, 103):
        new.say(starts=[start(number, "note", number)])
        new.hear_end(number)
    assert bench.seen == list(range(3, 103))
    assert dial(1).welcome.resumed, "the late bye has not ended the session"


def test_a_session_lives_on_when_its_replaced_connection_ends(bench: Any, dial: Dial) -> None:
    with ActorServer(key=KEY, session_timeout=0.3) as server:
        server.register("bench", bench)
        old = dial(address=server.address)
        new = dial(address=server.address)
        list(old.heard)  # the server has ended it
        other = dial(address=server.address, session="another")
        assert server.load.sessions == 2
        other.close()
        eventually(lambda: server.load.sessions < 2, "the one that left later is forgotten")
        new.say(starts=[start(1, "note", "alive")])
        new.hear_end(1)
        assert dial(1, address=server.address).welcome.resumed


def test_a_session_whose_welcome_does_not_arrive_is_forgotten_in_time(
    bench: Any, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_welcomes(monkeypatch, None)
    with ActorServer(key=KEY, session_timeout=0.2) as server:
        server.register("bench", bench)
        with pytest.raises(grpc.RpcError):
            dial(address=server.address)
        eventually(lambda: not server.load.sessions, "it is forgotten")


def test_long_errors_are_spread_over_messages(dial: Dial, bench: Any) -> None:
    numbers = range(1, 101)
    first = dial()
    first.say(starts=[start(number, "fail", "x" * 20_000) for number in numbers])
    first.say(starts=[start(101, "note", "the last")])
    eventually(lambda: bench.seen, "all have ended")
    first.close()
    again = dial(*numbers)
    sizes, told = [], set()
    while told != set(numbers):
        message = next(again.heard)
        sizes.append(len(message))
        told |= {end.call for end in unpack_server(message).message.ends}
    assert max(sizes) < 500_000 < sum(sizes)


def test_a_large_result_that_is_not_wanted_any_more_is_let_go(dial: Dial) -> None:
    line = dial()
    line.say(starts=[start(1, "make", 20_000_000)])
    assert line.hear_end(1).size > 20_000_000
    line.say(cancels=[1], starts=[start(2, "echo")])
    line.hear_end(2)
    assert list(dial(1, 2).welcome.known) == [2]


def test_an_argument_that_was_cut_off_keeps_its_place(through: ActorClient, proxy: TcpProxy, bench: Any) -> None:
    proxy.cut_after(8_000_000)
    before = proxy.accepted
    calls = [through.size.remote(bytes(20_000_000)), through.note.remote(1), through.note.remote(2)]
    for call in calls:
        call.result(WAIT_S)
    assert proxy.accepted > before
    assert bench.seen == [20_000_000, 1, 2]


def test_what_waits_behind_a_cut_off_argument_is_to_be_sent_again(server: ActorServer, dial: Dial, bench: Any) -> None:
    large = bytes(dump_arguments((bytes(1000),), {}).whole)
    line = dial()
    line.say(starts=[pb.CallStart(call=1, actor="bench", method="size", size=len(large)), start(2, "note", 2)])
    assert list(line.hear().goes) == [1]
    assert server.load.waiting_bytes == len(large)
    again = dial(2)
    assert not again.welcome.known
    assert server.load.waiting_bytes == 0
    again.say(starts=[start(1, "note", 1), start(2, "note", 2)])
    again.hear_end(2)
    assert bench.seen == [1, 2]


def test_a_call_that_was_cancelled_while_the_client_was_away_does_not_run(
    through: ActorClient, proxy: TcpProxy, bench: Any
) -> None:
    running, queued = through.wait.remote(), through.note.remote("never")
    eventually(lambda: bench.inside, "it is inside")
    with pytest.raises(InvalidRequest):
        through.nothing()  # refused at once, when what was said before it has arrived
    proxy.refuse(True)
    proxy.cut()
    assert queued.cancel()
    with pytest.raises(Conflict, match="was cancelled"):
        queued.result(WAIT_S)
    proxy.refuse(False)
    with pytest.raises(InvalidRequest):
        through.nothing()
    bench.gate.set()
    assert running.result(WAIT_S) == 1
    assert through.noted() == ["waited"]
