"""What comes from anyone costs little, and everything else goes on."""

import gc
import queue
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from fray.testing.waiting import eventually
from iris.actor import ActorClient, ActorServer
from iris.actor.server.hosted import HostedCall
from iris.actor.transport.handshake import new_nonce
from iris.actor.transport.wire import Envelope, pack
from iris.rpc.generated import actor_pb2 as pb
from iris.rpc.protocol import PROTOCOL_VERSION

WAIT_S = 20.0


def hello() -> bytes:
    said = pb.ClientHello(protocol_version=PROTOCOL_VERSION, nonce=new_nonce(), session="s", caller="anyone")
    return pb.ClientFrames(hello=said).SerializeToString()


def with_blob() -> bytes:
    envelope = Envelope(pb.ClientFrames.FromString(hello()))
    envelope.attach(b"x" * 100)
    return pack(envelope)


def proof(**fields: Any) -> bytes:
    return pb.ClientFrames(proof=pb.ClientProof(proof=b"x" * 32, **fields)).SerializeToString()


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([b"\x7a" + b"\xff" * 1_000_000], "1000001 bytes before the proof"),
        ([b"\x1a\x00" * 1_000_000], "2000000 bytes before the proof"),
        ([hello(), b"\x1a\x00" * 1_000_000], "2000000 bytes before the proof"),
        ([b"\x7a" + b"\xff" * 100_000], "not a message"),
        ([b"nonsense"], "not a message"),
        ([with_blob()], "blobs before the proof"),
        ([b""], "begins with hello"),
        ([hello(), proof()], "only jobs of the actor's own user"),
        ([hello(), proof(outstanding=range(2**64 - 10_000, 2**64))], "only jobs of the actor's own user"),
    ],
    ids=[
        "endless size", "starts", "starts for a proof", "long size", "nonsense", "one blob", "nothing", "false proof",
        "as many calls as a client can have",
    ],
)  # fmt: skip
def test_messages_of_anyone_cost_little(
    server: ActorServer, client: ActorClient, messages: list[bytes], words: str
) -> None:
    said: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for message in messages:
        said.put(message)
    with grpc.insecure_channel(server.address) as channel:
        heard = channel.stream_stream("/iris.v1.ActorService/Connect")(iter(said.get, None))
        with pytest.raises(grpc.RpcError, match=words) as ended:
            list(heard)
        said.put(None)
    refused = "only jobs" in words
    assert ended.value.code().name == ("PERMISSION_DENIED" if refused else "INVALID_ARGUMENT")
    assert client.echo(1) == 1


def test_of_those_who_show_nothing_two_are_listened_to_at_a_time(server: ActorServer, client: ActorClient) -> None:
    assert client.echo(1) == 1
    with grpc.insecure_channel(server.address) as channel:
        connect = channel.stream_stream("/iris.v1.ActorService/Connect")
        quiet = [queue.SimpleQueue[Any]() for _ in range(2)]
        calls = [connect(iter(said.get, None)) for said in quiet]
        for said, call in zip(quiet, calls, strict=True):
            said.put(hello())
            next(call)  # its answer is there: it is listened to
        third = connect(iter([hello()]))
        try:
            with pytest.raises(grpc.RpcError, match="too many callers of whom nothing is known; try again"):
                next(third)
        finally:
            for said in quiet:
                said.put(None)


def test_ended_calls_are_forgotten_long_before_their_deadline(
    server: ActorServer, connect: Callable[..., ActorClient]
) -> None:
    server.register("list", [1])
    client = connect(server.address, "list", timeout=3600.0)
    for call in [client.copy.remote() for _ in range(20)]:
        call.result(WAIT_S)

    def kept() -> int:
        gc.collect()
        return sum(type(one) is HostedCall and one.method == "copy" for one in gc.get_objects())

    # The last results are acknowledged a moment after they came.
    eventually(lambda: not kept(), "none is kept", timeout=10.0, instead=kept)


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


@pytest.mark.process
def test_messages_of_anyone_are_not_kept_while_they_come() -> None:
    """gRPC gives a message away when it is whole; until then it is in the server's memory."""
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
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
        # Of 288 MB that were sent; how many small pieces are on their way at once depends on the machine.
        assert peak_mib() - at_first < 64
    finally:
        process.communicate("", 10)
