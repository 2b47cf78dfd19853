import pytest

from iris.actor.transport.wire import Envelope, next_blob, pack, unpack_client, unpack_server
from iris.rpc.generated import actor_pb2 as pb
from rigging.errors import Unavailable

SIZES = (0, 1, 127, 128, 16_383, 16_384, 300_000)


def test_blobs_come_out_in_their_order() -> None:
    blobs = [bytes([size % 251]) * size for size in SIZES]
    message = pb.ClientFrames(acks=[1, 2], starts=[pb.CallStart(call=3, attached=True)], bye=True)
    envelope = Envelope(message)
    for blob in blobs:
        envelope.attach(blob[:100], memoryview(blob)[100:])
    there = unpack_client(pack(envelope))
    assert there.message == message
    assert [bytes(blob) for blob in there.blobs] == blobs


def test_protobuf_reads_what_was_packed_and_the_other_way_round() -> None:
    message = pb.ServerFrames(ends=[pb.CallEnd(call=3, attached=True)])
    envelope = Envelope(message)
    envelope.attach(b"x" * 300)
    envelope.attach(memoryview(b"y" * 70_000))
    plain = pb.ServerFrames.FromString(pack(envelope))
    assert list(plain.blobs) == [b"x" * 300, b"y" * 70_000]
    assert plain.ends == message.ends
    assert pack(Envelope(message)) == message.SerializeToString()
    assert unpack_server(message.SerializeToString()).message == message
    assert not unpack_server(b"").blobs


def test_a_message_that_ends_too_early_is_refused() -> None:
    envelope = Envelope(pb.ClientFrames())
    envelope.attach(b"x" * 300)
    whole = pack(envelope)
    with pytest.raises(ValueError, match="a blob of 300 bytes where 297 are left"):
        unpack_client(whole[:-3])
    with pytest.raises(IndexError):
        unpack_client(whole[:1])


def test_a_size_is_read_as_protobuf_reads_it_and_never_without_end() -> None:
    """A peer may write a small size in many bytes; one that never ends must not be read on and on."""
    longest = b"\x7a\x83" + b"\x80" * 8 + b"\x00abc"
    assert list(pb.ClientFrames.FromString(longest).blobs) == [b"abc"]
    assert [bytes(blob) for blob in unpack_client(longest).blobs] == [b"abc"]
    with pytest.raises(ValueError, match="more than 64 bits"):
        unpack_client(b"\x7a\x83" + b"\x80" * 9 + b"\x00abc")


def test_a_message_with_fewer_blobs_than_it_speaks_of_ends_the_connection_in_order() -> None:
    envelope = Envelope(pb.ServerFrames(ends=[pb.CallEnd(call=1, attached=True), pb.CallEnd(call=2, attached=True)]))
    envelope.attach(b"x" * 300)
    blobs = iter(unpack_server(pack(envelope)).blobs)
    assert bytes(next_blob(blobs)) == b"x" * 300
    with pytest.raises(Unavailable, match="fewer blobs"):
        next_blob(blobs)
