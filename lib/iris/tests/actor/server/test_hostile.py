"""What comes from anyone, and what users' classes do: one call fails, everything else goes on."""

import gc
import queue
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from iris.actor import ActorClient, ActorServer, RemoteError
from iris.actor.server.hosted import HostedCall
from iris.actor.transport.handshake import is_pass, new_nonce, pass_of
from iris.actor.transport.wire import Envelope, pack, unpack_client
from iris.rpc import actor_pb2 as pb
from iris.rpc.protocol import PROTOCOL_VERSION
from rigging.errors import DeadlineExceeded, InvalidRequest
from rigging.testing import eventually

WAIT_S = 20.0


class Unspeakable(Exception):
    """Fails when anything is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")

    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __reduce__(self) -> Any:
        raise RuntimeError("no pickle")


class Trap:
    """A descriptor that raises, whoever asks."""

    def __init__(self, error: type[BaseException]) -> None:
        self._error = error

    def __get__(self, instance: object, owner: type) -> Any:
        raise self._error("not on this machine")


class Odd:
    broken = Trap(RuntimeError)
    leaves = Trap(SystemExit)

    def fail_in_syntax(self) -> None:
        raise SyntaxError("bad", ("f", 1, "3", "text"))  # type: ignore[arg-type]

    def fail_unspeakably(self) -> None:
        raise Unspeakable()

    def still_there(self) -> str:
        return "still there"

    def counted(self) -> int:
        return 1


def hello() -> pb.ClientHello:
    return pb.ClientHello(protocol_version=PROTOCOL_VERSION, nonce=new_nonce(), session="s", caller="anyone")


def with_blob() -> bytes:
    envelope = Envelope(pb.ClientFrames(hello=hello()))
    envelope.attach(b"x" * 100)
    return pack(envelope)


def answer_to(address: str, *messages: bytes) -> grpc.RpcError:
    """How a server ends a connection on which somebody says this."""
    said: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    for message in messages:
        said.put(message)
    with grpc.insecure_channel(address) as channel:
        heard = channel.stream_stream("/iris.v1.ActorService/Connect")(iter(said.get, None))
        with pytest.raises(grpc.RpcError) as error:
            list(heard)
        said.put(None)  # type: ignore[arg-type]
        return error.value


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"\x7a" + b"\xff" * 1_000_000, "1000001 bytes before the proof"),
        (b"\x7a\x00" * 1_000_000, "2000000 bytes before the proof"),
        (b"\x1a\x00" * 1_000_000, "2000000 bytes before the proof"),
        (b"\x7a" + b"\xff" * 100_000, "not a message"),
        (b"nonsense", "not a message"),
        (with_blob(), "blobs before the proof"),
        (b"", "begins with hello"),
    ],
    ids=["endless size", "blobs", "starts", "long size", "nonsense", "one blob", "nothing"],
)
def test_messages_of_anyone_cost_little(server: ActorServer, client: ActorClient, message: bytes, words: str) -> None:
    ended = answer_to(server.address, message)
    assert ended.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert words in ended.details()
    assert client.echo(1) == 1


def test_the_message_that_should_prove_the_key_is_looked_at_as_little(server: ActorServer, client: ActorClient) -> None:
    greeting = pb.ClientFrames(hello=hello()).SerializeToString()
    ended = answer_to(server.address, greeting, b"\x1a\x00" * 1_000_000)
    assert ended.code() is grpc.StatusCode.INVALID_ARGUMENT
    false = answer_to(server.address, greeting, pb.ClientFrames(proof=pb.ClientProof(proof=b"x")).SerializeToString())
    assert false.code() is grpc.StatusCode.PERMISSION_DENIED
    assert client.echo(1) == 1


def test_of_those_who_show_nothing_two_are_listened_to_at_a_time(server: ActorServer, client: ActorClient) -> None:
    assert client.echo(1) == 1
    with grpc.insecure_channel(server.address) as channel:
        connect = channel.stream_stream("/iris.v1.ActorService/Connect")
        greeting = pb.ClientFrames(hello=hello()).SerializeToString()
        quiet = [queue.SimpleQueue[Any]() for _ in range(2)]
        calls = [connect(iter(said.get, None)) for said in quiet]
        for said, call in zip(quiet, calls, strict=True):
            said.put(greeting)
            next(call)  # its answer is there: it is listened to
        third = connect(iter([greeting]))
        try:
            with pytest.raises(grpc.RpcError, match="too many callers of whom nothing is known; try again"):
                next(third)
        finally:
            for said in quiet:
                said.put(None)


def test_a_client_may_wait_for_as_many_calls_as_it_can_have(server: ActorServer) -> None:
    greeting = pb.ClientFrames(hello=hello()).SerializeToString()
    proof = pb.ClientProof(proof=b"x" * 32, outstanding=range(2**64 - 10_000, 2**64))
    ended = answer_to(server.address, greeting, pb.ClientFrames(proof=proof).SerializeToString())
    assert ended.code() is grpc.StatusCode.PERMISSION_DENIED  # not: too long


def test_a_size_of_a_blob_has_at_most_64_bits() -> None:
    with pytest.raises(ValueError, match="more than 64 bits"):
        unpack_client(b"\x7a" + b"\xff" * 100 + b"\x00")
    with pytest.raises(ValueError, match="a blob of 18446744073709551615 bytes where 0 are left"):
        unpack_client(b"\x7a" + b"\xff" * 9 + b"\x01")


def test_exceptions_that_cannot_be_told_as_text_end_their_call_only(server: ActorServer, client: ActorClient) -> None:
    server.register("odd", Odd())
    with ActorClient.at(server.address, "odd", key=b"k" * 32) as odd:
        with pytest.raises(SyntaxError):
            odd.fail_in_syntax.remote().result(WAIT_S)
        with pytest.raises(RemoteError, match="Unspeakable"):
            odd.fail_unspeakably.remote().result(WAIT_S)
        assert odd.still_there.remote().result(WAIT_S) == "still there"


@pytest.mark.parametrize("name", ["broken", "leaves"])
def test_a_name_that_fails_when_it_is_looked_up_is_no_method(server: ActorServer, name: str) -> None:
    server.register("odd", Odd())
    with ActorClient.at(server.address, "odd", key=b"k" * 32) as odd:
        assert odd.still_there.remote().result(WAIT_S) == "still there"
        for client in (odd, server.own_client("odd")):
            with pytest.raises(InvalidRequest, match=name):
                client.method(name).remote().result(WAIT_S)
            assert client.still_there.remote().result(WAIT_S) == "still there"


def test_ended_calls_are_forgotten_long_before_their_deadline(
    server: ActorServer, connect: Callable[..., ActorClient]
) -> None:
    server.register("odd", Odd())
    client = connect(server.address, "odd", timeout=3600.0)
    for call in [client.counted.remote() for _ in range(20)]:
        call.result(WAIT_S)

    def kept() -> int:
        gc.collect()
        return sum(type(one) is HostedCall and one.method == "counted" for one in gc.get_objects())

    # The last results are acknowledged a moment after they came.
    eventually(lambda: not kept(), "none is kept", timeout=10.0, instead=kept)
    assert kept() == 0


def test_calls_of_an_actor_by_its_own_process_have_deadlines(server: ActorServer, bench: Any) -> None:
    client = server.own_client("bench")
    running = client.call("wait", timeout=0.3)
    queued = client.call("note", ("late",), timeout=0.2)
    for call in (running, queued):
        with pytest.raises(DeadlineExceeded, match=r"of actor 'bench': no result before its deadline"):
            call.result(WAIT_S)
    assert bench.inside
    patient = client.call("note", ("after",), timeout=WAIT_S)
    bench.gate.set()
    assert patient.result(WAIT_S) == 2
    assert bench.seen == ["waited", "after"]


SERVER = """
import sys
from iris.actor import ActorServer
class Echo:
    def echo(self, value):
        return value
with ActorServer(key=b"k" * 32) as server:
    server.register("echo", Echo())
    print(server.address, flush=True)
    sys.stdin.read()
"""


def test_messages_of_anyone_are_not_kept_while_they_come() -> None:
    """gRPC gives a message away when it is whole; until then it is in the server's memory."""
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        status = Path(f"/proc/{process.pid}/status")

        def peak_mib() -> int:
            return next(int(line.split()[1]) >> 10 for line in status.read_text().splitlines() if "VmHWM" in line)

        with ActorClient.at(address, "echo", key=b"k" * 32) as before:
            assert before.echo(1) == 1
        at_first = peak_mib()
        unlimited = [("grpc.max_send_message_length", -1)]
        with grpc.insecure_channel(address, options=unlimited) as channel:
            connect = channel.stream_stream("/iris.v1.ActorService/Connect")
            sizes = [64 << 20] * 2 + [4_000_000] * 40
            strangers = [connect(iter([bytes(size)])) for size in sizes]
            # Whoever holds the key is served at once, between them.
            with ActorClient.at(address, "echo", key=b"k" * 32) as client:
                assert client.echo.remote(b"x" * 3_000_000).result(5) == b"x" * 3_000_000
            codes = {stranger.code().name for stranger in strangers}
            assert codes <= {"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "UNAVAILABLE"}
        assert peak_mib() - at_first < 40  # of 288 MB that were sent
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def test_a_pass_is_of_one_key() -> None:
    key = b"k" * 32
    assert is_pass(pass_of(key), key)
    assert pass_of(key) != pass_of(key)
    for other in ("", ":", "x", pass_of(b"l" * 32), f"{pass_of(key)}0"):
        assert not is_pass(other, key)
