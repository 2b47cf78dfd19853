"""Connections of one server without gRPC: who is let in, and how long what a caller left is kept."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from iris.actor.server.service import ActorService, ServerLoad
from iris.actor.transport.handshake import PASS_KEY, Handshake, new_nonce, pass_of
from iris.rpc import actor_pb2 as pb
from iris.rpc.protocol import PROTOCOL_VERSION
from iris.testing.loops import ShiftedLoop, run_in
from rigging.testing import eventually_async

KEY = b"k" * 32


class Aborted(Exception):
    pass


class Caller:
    """One connection from the other side, which the test plays; it holds the key unless told otherwise."""

    def __init__(self, key: bytes = KEY, session: str = "s", **hello: Any) -> None:
        self._key = key
        given = {"protocol_version": PROTOCOL_VERSION, "nonce": new_nonce(), "session": session, "caller": "a test"}
        self.hello = pb.ClientHello(**{**given, **hello})
        self._said: asyncio.Queue[Any] = asyncio.Queue()
        self.heard: list[pb.ServerFrames] = []

    def say(self, message: Any) -> None:
        self._said.put_nowait(message)

    def leave(self) -> None:
        self._said.put_nowait(grpc.aio.EOF)

    def invocation_metadata(self) -> Any:
        return ((PASS_KEY, pass_of(self._key)),)

    async def read(self) -> Any:
        message = await self._said.get()
        return message if message is grpc.aio.EOF else message.SerializeToString()

    async def write(self, envelope: Any) -> None:
        self.heard.append(envelope.message)
        if envelope.message.HasField("challenge"):
            challenge = envelope.message.challenge
            handshake = Handshake(self.hello.nonce, challenge.nonce, challenge.instance, self.hello.session)
            assert challenge.proof == handshake.server_proof(KEY)
            self.say(pb.ClientFrames(proof=pb.ClientProof(proof=handshake.client_proof(self._key))))

    async def abort(self, code: grpc.StatusCode, text: str) -> None:
        raise Aborted(code, text)


Scenario = Callable[[ActorService], Awaitable[None]]


def run(scenario: Scenario, session_timeout_s: float = 600.0, loop: ShiftedLoop | None = None) -> None:
    async def whole(_: ShiftedLoop) -> None:
        service = ActorService("life", KEY, {}, 1000, session_timeout_s)
        await asyncio.wait_for(scenario(service), 20)

    run_in(loop or ShiftedLoop(), whole)


async def refusal(service: ActorService, caller: Caller, *said: Any) -> tuple[grpc.StatusCode, str]:
    for message in said:
        caller.say(message)
    with pytest.raises(Aborted) as aborted:
        await service.connect(None, caller)
    assert service.load == ServerLoad(0, 0), "nothing is kept of it"
    code, text = aborted.value.args
    return code, text


@pytest.mark.parametrize(
    ("hello", "code", "words"),
    [
        (
            {"protocol_version": PROTOCOL_VERSION + 1},
            grpc.StatusCode.FAILED_PRECONDITION,
            f"the caller speaks protocol version {PROTOCOL_VERSION + 1}, the actor {PROTOCOL_VERSION}: use one release",
        ),
        ({"nonce": b"short"}, grpc.StatusCode.INVALID_ARGUMENT, "the nonce of hello has the wrong size"),
        ({"session": ""}, grpc.StatusCode.INVALID_ARGUMENT, "a connection begins with hello"),
    ],
)
def test_a_hello_that_cannot_be_is_not_answered(hello: dict[str, Any], code: grpc.StatusCode, words: str) -> None:
    async def scenario(service: ActorService) -> None:
        caller = Caller(**hello)
        found, text = await refusal(service, caller, pb.ClientFrames(hello=caller.hello))
        assert found is code
        assert words in text
        assert caller.heard == []

    run(scenario)


def test_who_leaves_or_says_nothing_or_has_another_key_is_not_let_in(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(service: ActorService) -> None:
        gone = Caller()
        gone.leave()
        assert (await refusal(service, gone))[0] is grpc.StatusCode.INVALID_ARGUMENT
        left = Caller()
        hello = pb.ClientFrames(hello=left.hello)
        assert await refusal(service, left, hello, grpc.aio.EOF) == (grpc.StatusCode.CANCELLED, "the caller left")
        other = Caller(b"o" * 32)
        text = "only jobs of the actor's own user may call it"
        found = await refusal(service, other, pb.ClientFrames(hello=other.hello))
        assert found == (grpc.StatusCode.PERMISSION_DENIED, text)
        service.handshake_s = 0.01
        late = (grpc.StatusCode.DEADLINE_EXCEEDED, "no handshake in time")
        assert await refusal(service, Caller()) == late

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert "refused a caller that calls itself 'a test': it does not hold this user's key" in caplog.text


def test_a_server_that_stops_says_so_to_those_who_come() -> None:
    async def scenario(service: ActorService) -> None:
        service.refuse_new("the actor was shut down")
        caller = Caller()
        found = await refusal(service, caller, pb.ClientFrames(hello=caller.hello))
        assert found == (grpc.StatusCode.UNAVAILABLE, "the actor was shut down")

    run(scenario)


def connected(service: ActorService, session: str = "s") -> "tuple[Caller, asyncio.Task[None]]":
    caller = Caller(session=session)
    caller.say(pb.ClientFrames(hello=caller.hello))
    return caller, asyncio.create_task(service.connect(None, caller))


def test_one_who_comes_back_finds_its_session_and_one_who_says_bye_leaves_none() -> None:
    async def scenario(service: ActorService) -> None:
        for resumed in (False, True):
            caller, serving = connected(service)
            await eventually_async(lambda caller=caller: len(caller.heard) == 2, "it is welcomed")
            assert caller.heard[1].welcome.resumed is resumed
            caller.leave()
            await serving
            assert service.load.sessions == 1
        other, serving = connected(service, "other")
        await eventually_async(lambda: len(other.heard) == 2, "the other is welcomed")
        assert service.load.sessions == 2
        other.say(pb.ClientFrames(bye=True))
        await serving
        assert service.load.sessions == 1, "nobody will ask for the results"

    run(scenario)


def test_what_a_caller_left_is_forgotten_when_it_stays_away_and_not_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = ShiftedLoop()

    async def scenario(service: ActorService) -> None:
        async def advance(seconds: float) -> None:
            loop.ahead_s += seconds
            await asyncio.sleep(0)  # first the loop looks at its clock, then it calls what is due
            await asyncio.sleep(0)

        first, serving = connected(service)
        await eventually_async(lambda: len(first.heard) == 2, "it is welcomed")
        again, later = connected(service)
        await eventually_async(lambda: len(again.heard) == 2, "it is welcomed again")
        await serving  # the newer connection ends the older one, from whose end on it is counted
        await advance(1.1)
        assert service.load.sessions == 1, "it came back"
        again.leave()
        await later
        await advance(0.9)
        assert service.load.sessions == 1, "it may come back once more"
        await advance(0.2)
        assert service.load.sessions == 0

    with caplog.at_level(logging.WARNING):
        run(scenario, session_timeout_s=1.0, loop=loop)
    assert caplog.text.count("forgot the calls of a test, which was away for too long") == 1


def test_a_goodbye_reaches_all_who_are_connected_before_they_are_let_go() -> None:
    async def scenario(service: ActorService) -> None:
        callers = [connected(service, name) for name in ("a", "b")]
        await eventually_async(lambda: all(len(caller.heard) == 2 for caller, _ in callers), "all are welcomed")
        service.refuse_new("the actor was shut down")
        await service.say_goodbye()
        for caller, serving in callers:
            await serving
            assert caller.heard[-1].goodbye == "the actor was shut down"
        await service.say_goodbye()

    run(scenario)
