"""Encodes the messages of a connection. Large pickles precede the protobuf message, because protobuf would copy
them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

import grpc
import grpc.aio

from iris.actor.transport.handshake import PASS_KEY, pass_of
from iris.rpc.generated import actor_pb2 as pb
from rigging.errors import Unavailable

Message = TypeVar("Message", pb.ClientFrames, pb.ServerFrames)
Buffer = bytes | bytearray | memoryview

_METHOD: Final = "Connect"
_SERVICE: Final = pb.DESCRIPTOR.services_by_name["ActorService"].full_name
_BLOBS_TAG: Final = 15 << 3 | 2
"""The byte with which each of a message's `blobs` starts (see actor.proto)."""

_SIZE_BYTES: Final = 10
"""Maximum number of bytes, of seven bits each, of a number in protobuf."""


class Envelope(Generic[Message]):
    """A message with the blobs that its frames refer to, in order.

    Attributes:
        blobs: The blobs of a received message. pieces: The blobs of an outgoing message, with the bytes before each.
    """

    __slots__ = ("blobs", "message", "pieces")

    def __init__(self, message: Message, blobs: Sequence[Buffer] = ()) -> None:
        self.message: Message = message
        self.blobs = blobs
        self.pieces: list[Buffer] = []

    def attach(self, *pieces: Buffer) -> None:
        """Add another blob, given in pieces."""
        self.pieces += (_prefix(sum(map(len, pieces))), *pieces)


Stream: TypeAlias = "grpc.aio.StreamStreamCall[Envelope[pb.ClientFrames], Envelope[pb.ServerFrames]]"


def pack(envelope: "Envelope[Message]") -> bytes:
    """Return the envelope as one protobuf message."""
    text = envelope.message.SerializeToString()
    return b"".join((*envelope.pieces, text)) if envelope.pieces else text


def unpack_client(data: bytes) -> "Envelope[pb.ClientFrames]":
    """Return the envelope that a client packed. Raise DecodeError, IndexError or ValueError for anything else."""
    return _unpack(data, pb.ClientFrames.FromString)


def unpack_server(data: bytes) -> "Envelope[pb.ServerFrames]":
    """Return the envelope that a server packed. Raise DecodeError, IndexError or ValueError for anything else."""
    return _unpack(data, pb.ServerFrames.FromString)


def next_blob(blobs: Iterator[Buffer]) -> Buffer:
    """Return the blob of the next frame that refers to one. Raise Unavailable if there is none."""
    blob = next(blobs, None)
    if blob is None:
        raise Unavailable("a message of an actor's connection has fewer blobs than it speaks of")
    return blob


def open_stream(channel: grpc.aio.Channel, key: bytes) -> Stream:
    """Open a connection as a holder of a user's key."""
    method: grpc.aio.StreamStreamMultiCallable[Envelope[pb.ClientFrames], Envelope[pb.ServerFrames]] = (
        channel.stream_stream(f"/{_SERVICE}/{_METHOD}", request_serializer=pack, response_deserializer=unpack_server)
    )
    return method(metadata=((PASS_KEY, pass_of(key)),))


def handler_of(connect: Callable[..., Any]) -> grpc.GenericRpcHandler:
    """Return a handler that serves connections with `connect`, which receives raw bytes and first authenticates the
    caller.
    """
    handler: Any = grpc.stream_stream_rpc_method_handler(connect, response_serializer=pack)
    return grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: handler})


def _unpack(data: bytes, parse: Callable[[bytes], Message]) -> "Envelope[Message]":
    if not data or data[0] != _BLOBS_TAG:
        return Envelope(parse(data))
    view, at = memoryview(data), 0
    blobs: list[Buffer] = []
    while at < len(data) and data[at] == _BLOBS_TAG:
        size, begin = _size(data, at + 1)
        at = begin + size
        if at > len(data):
            raise ValueError(f"a blob of {size} bytes where {len(data) - begin} are left")
        blobs.append(view[begin:at])
    return Envelope(parse(bytes(view[at:])), blobs)


def _prefix(size: int) -> bytes:
    """Return the tag of a blob and its size, seven bits per byte, lowest first."""
    made = bytearray((_BLOBS_TAG,))
    while size > 0x7F:
        made.append(size & 0x7F | 0x80)
        size >>= 7
    made.append(size)
    return bytes(made)


def _size(data: bytes, at: int) -> tuple[int, int]:
    """Return the size encoded at a position, and the next position. Raise ValueError for more than ten bytes."""
    size = 0
    for number in range(_SIZE_BYTES):
        byte = data[at + number]
        size |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            return size, at + number + 1
    raise ValueError("the size of a blob takes more than 64 bits")
