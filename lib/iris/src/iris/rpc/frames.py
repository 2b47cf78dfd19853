"""Streams of messages on a Unix socket between processes of one machine, at an eighth of the cost of gRPC.

A frame is a length (4 bytes, little-endian), a kind (1 byte) and `length` bytes. The caller's first frame opens the
stream: JSON with `method` and `metadata`, as in a gRPC call. Then both sides send messages; the caller may half-close
the stream. The server's last frame contains the status of the stream, like gRPC's.
"""

import asyncio
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import grpc

from iris.rpc.status_map import status_of_number
from rigging.errors import InvalidRequest, Unavailable

MAX_OPENING_BYTES: Final = 16 * 1024
MAX_SOCKET_PATH: Final = 100
"""The kernel's maximum length of a socket's path, in bytes."""

_HEADER: Final = struct.Struct("<IB")

Metadata = tuple[tuple[str, str], ...]


class FrameKind(IntEnum):
    """The kind of a frame, with its number on the wire."""

    OPENING = 1
    MESSAGE = 2
    END = 3


def frame(kind: FrameKind, data: bytes) -> bytes:
    """Return the bytes of a frame."""
    return _HEADER.pack(len(data), kind) + data


class FrameReader:
    """Splits received bytes into frames.

    Args:
        most: Maximum size of a frame in bytes; may be changed between frames.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[FrameKind, bytes]]:
        """Return the frames completed by `data`. Raises InvalidRequest for a frame that is too long or of an unknown
        kind.
        """
        buffer = self._buffer
        buffer += data
        place = 0
        try:
            while len(buffer) - place >= _HEADER.size:
                size, kind = _HEADER.unpack_from(buffer, place)
                _check_size(size, self.most)
                end = place + _HEADER.size + size
                if len(buffer) < end:
                    break
                content = bytes(buffer[place + _HEADER.size : end])
                place = end
                yield _kind(kind), content
        finally:
            del buffer[:place]


async def read_frame(reader: asyncio.StreamReader, most: int) -> tuple[FrameKind, bytes] | None:
    """Return the next frame; None at the end of the stream.

    Raises:
        InvalidRequest: The frame is longer than `most` bytes, or of an unknown kind.
    """
    try:
        size, kind = _HEADER.unpack(await reader.readexactly(_HEADER.size))
        _check_size(size, most)
        return _kind(kind), await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


async def write_frame(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send a frame as soon as the socket has room. Raises Unavailable if the other side has closed."""
    try:
        if writer.is_closing():
            raise ConnectionResetError
        writer.write(data)
        await writer.drain()
    except ConnectionError:
        raise Unavailable("the connection is closed") from None


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise InvalidRequest(f"a message of {size} bytes; at most {most} are allowed")


def _kind(number: int) -> FrameKind:
    try:
        return FrameKind(number)
    except ValueError:
        raise InvalidRequest(f"a frame of kind {number}: use the same release of iris on both sides") from None


@dataclass(frozen=True, slots=True)
class Opening:
    """The first frame of a stream, with `method` as in gRPC ("/iris.v1.ClientService/Session")."""

    method: str
    metadata: Metadata

    def to_frame(self) -> bytes:
        """Return the first frame of a stream."""
        return frame(
            FrameKind.OPENING, json.dumps({"method": self.method, "metadata": list(map(list, self.metadata))}).encode()
        )

    @classmethod
    def of(cls, data: bytes) -> "Opening":
        """Parse the first frame. Raises InvalidRequest for a malformed frame."""
        try:
            found = json.loads(data)
            pairs = tuple((str(key), str(value)) for key, value in found["metadata"])
            return cls(str(found["method"]), pairs)
        except (ValueError, TypeError, KeyError, RecursionError):
            raise InvalidRequest("a stream begins with its method and metadata") from None


def end_frame(code: grpc.StatusCode, details: str) -> bytes:
    """Return the last frame of a stream."""
    return frame(FrameKind.END, json.dumps({"code": code.value[0], "details": details}).encode())


def read_end(data: bytes) -> tuple[grpc.StatusCode, str]:
    """Return the status and details of the last frame of a stream."""
    try:
        found = json.loads(data)
        return status_of_number(found["code"]), str(found["details"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return grpc.StatusCode.UNKNOWN, "the stream ended without a readable reason"
