"""Connections of one server without gRPC: who is let in, and how long what a caller left is kept."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from fray.testing.waiting import eventually_async
from iris.actor.server.service import ActorService, ServerLoad
from iris.actor.transport.handshake import PASS_KEY, Handshake, new_nonce, pass_of
from iris.rpc.generated import actor_pb2 as pb
from iris.rpc.protocol import PROTOCOL_VERSION
from support.iris.loops import ShiftedLoop

KEY = b"k" * 32


class Aborted(Exception):
    pass


class Caller:
    """One connection from the other side, which the test plays; it holds the key unless told otherwise.

    Attributes:
        on_welcome: Called while it is welcomed.
    """

    def __init__(self, key: bytes = KEY, session: str = "s", **hello: Any) -> None:
        self._key = key
        given = {"protocol_version": PROTOCOL_VERSION, "nonce": new_nonce(), "session": session, "caller": "a test"}
        self.hello = pb.ClientHello(**{**given, **hello})
        self._said: asyncio.Queue[Any] = asyncio.Queue()
        self.heard: list[pb.ServerFrames] = []
        self.on_welcome: Callable[[], object] = lambda: None

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
        if envelope.message.HasField("welcome"):
            self.on_welcome()
        if envelope.message.HasField("challenge"):
            challenge = envelope.message.challenge
            handshake = Handshake(self.hello.nonce, challenge.nonce, challenge.instance, self.hello.session)
            assert challenge.proof == handshake.server_proof(KEY)
            self.say(pb.ClientFrames(proof=pb.ClientProof(proof=handshake.client_proof(self._key))))

    async def abort(self, code: grpc.StatusCode, text: str) -> None:
        raise Aborted(code, text)

    async def welcomed(self) -> None:
        await eventually_async(lambda: len(self.heard) == 2, "it is welcomed")


@pytest.fixture
def service(runner: asyncio.Runner) -> ActorService:
    async def made() -> ActorService:
        return ActorService("life", KEY, {}, 1000, session_timeout_s=1.0)

    return runner.run(made())


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
    ids=["another version", "nonce", "no session"],
)
async def test_a_hello_that_cannot_be_is_not_answered(
    service: ActorService, hello: dict[str, Any], code: grpc.StatusCode, words: str
) -> None:
    caller = Caller(**hello)
    found, text = await refusal(service, caller, pb.ClientFrames(hello=caller.hello))
    assert found is code
    assert words in text
    assert caller.heard == []


async def test_who_leaves_or_says_nothing_or_has_another_key_or_comes_too_late_is_not_let_in(
    service: ActorService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
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
    assert "refused a caller that calls itself 'a test': it does not hold this user's key" in caplog.text
    service.handshake_s = 0.01
    late = (grpc.StatusCode.DEADLINE_EXCEEDED, "no handshake in time")
    assert await refusal(service, Caller()) == late
    service.handshake_s = 15.0
    service.refuse_new("the actor was shut down")
    caller = Caller()
    found = await refusal(service, caller, pb.ClientFrames(hello=caller.hello))
    assert found == (grpc.StatusCode.UNAVAILABLE, "the actor was shut down")


def connected(service: ActorService, session: str = "s") -> "tuple[Caller, asyncio.Task[None]]":
    caller = Caller(session=session)
    caller.say(pb.ClientFrames(hello=caller.hello))
    return caller, asyncio.create_task(service.connect(None, caller))


async def test_one_who_comes_back_finds_its_session_and_one_who_says_bye_leaves_none(service: ActorService) -> None:
    for resumed in (False, True):
        caller, serving = connected(service)
        await caller.welcomed()
        assert caller.heard[1].welcome.resumed is resumed
        caller.leave()
        await serving
        assert service.load.sessions == 1
    other, serving = connected(service, "other")
    await other.welcomed()
    assert service.load.sessions == 2
    other.say(pb.ClientFrames(bye=True))
    await serving
    assert service.load.sessions == 1, "nobody will ask for the results"


async def test_what_comes_late_by_a_replaced_connection_is_not_heard(service: ActorService) -> None:
    old, ending = connected(service)
    await old.welcomed()
    new, _ = connected(service)
    new.on_welcome = lambda: old.say(pb.ClientFrames(bye=True))
    await new.welcomed()
    await ending
    assert service.load.sessions == 1, "the late bye has not ended the session"


async def advance(loop: ShiftedLoop, seconds: float) -> None:
    loop.ahead_s += seconds
    await asyncio.sleep(0)  # first the loop looks at its clock, then it calls what is due
    await asyncio.sleep(0)


async def test_what_a_caller_left_is_forgotten_when_it_stays_away_and_not_before(
    service: ActorService, loop: ShiftedLoop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    first, serving = connected(service)
    await first.welcomed()
    again, later = connected(service)
    await again.welcomed()
    await serving  # the newer connection ends the older one, from whose end on it is counted
    await advance(loop, 1.1)
    assert service.load.sessions == 1, "it came back"
    again.leave()
    await later
    await advance(loop, 0.9)
    assert service.load.sessions == 1, "it may come back once more"
    await advance(loop, 0.2)
    assert service.load.sessions == 0
    assert caplog.text.count("forgot the calls of a test, which was away for too long") == 1


async def test_a_session_whose_welcome_does_not_arrive_is_forgotten_in_time(
    service: ActorService, loop: ShiftedLoop
) -> None:
    def fail() -> None:
        raise ConnectionResetError("the client is gone")

    caller, serving = connected(service)
    caller.on_welcome = fail
    with pytest.raises(ConnectionResetError):
        await serving
    assert service.load.sessions == 1
    await advance(loop, 1.1)
    assert service.load.sessions == 0


async def test_a_goodbye_reaches_all_who_are_connected_before_they_are_let_go(service: ActorService) -> None:
    callers = [connected(service, name) for name in ("a", "b")]
    for caller, _ in callers:
        await caller.welcomed()
    service.refuse_new("the actor was shut down")
    await service.say_goodbye()
    for caller, serving in callers:
        await serving
        assert caller.heard[-1].goodbye == "the actor was shut down"
    await service.say_goodbye()
