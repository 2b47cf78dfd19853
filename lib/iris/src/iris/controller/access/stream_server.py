"""Serves streams on a Unix socket to processes of the same user, with the servicers and rules of the gRPC server."""

import asyncio
import contextlib
import logging
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import grpc

from iris.controller.access.interceptor import Behaviour, Decoder, ServerInterceptor
from iris.rpc.frames import (
    MAX_OPENING_BYTES,
    MAX_SOCKET_PATH,
    FrameKind,
    Opening,
    end_frame,
    frame,
    read_frame,
    write_frame,
)
from iris.rpc.protocol import MAX_REQUEST_BYTES
from iris.rpc.status_map import to_status
from rigging.errors import InvalidRequest, MarinError

logger = logging.getLogger(__name__)

_OPENING_S: Final = 15.0
_PEER: Final = struct.Struct("3i")

Messages = AsyncIterator[Any]
Serve = Callable[[Messages, "StreamContext"], Awaitable[None]]
Admit = Callable[[Opening], tuple[Callable[[bytes], Any], Serve]]
"""Returns the decoder and behaviour of a stream, in the stream's task. Raises MarinError to refuse the stream."""


def admit_stream(
    interceptor: ServerInterceptor, methods: Mapping[str, tuple[Behaviour, Decoder]], opening: Opening
) -> tuple[Decoder, Serve]:
    """Return the decoder and behaviour of a stream after authorizing it like a gRPC call. Raise MarinError if refused.

    Args:
        interceptor: Applies the rule of the method.
        methods: Behaviour and decoder by method.
        opening: The first frame of the stream.
    """
    known = methods.get(opening.method)
    if known is None:
        raise InvalidRequest(f"{opening.method!r} is not a stream of this socket; use one of {', '.join(methods)}")
    return interceptor.admit_stream(opening.method, opening.metadata, *known)


def _user_of(connection: socket.socket) -> int:
    _, user, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return int(user)


class StreamServer:
    """The streams of one socket.

    Args:
        path: The socket's path. An existing file is removed.
        admit: Authorizes a new stream before any message is read.
        opening_s: Seconds that a caller may stay silent at the start.
        user_of: Returns the user id of the process at the other end of a socket.
    """

    def __init__(
        self,
        path: Path,
        admit: Admit,
        opening_s: float = _OPENING_S,
        user_of: Callable[[socket.socket], int] = _user_of,
    ) -> None:
        self._path = path
        self._admit = admit
        self._opening_s = opening_s
        self._user_of = user_of
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._open)

    async def start(self) -> None:
        """Listen on the socket. If it cannot be created, callers use gRPC."""
        if len(os.fsencode(self._path)) > MAX_SOCKET_PATH:
            return
        try:
            self._path.unlink(missing_ok=True)
            self._server = await asyncio.start_unix_server(self._connected, self._path)
            self._path.chmod(0o600)
        except OSError as error:
            logger.warning("no socket %s (%s): local callers use TCP", self._path, error)

    async def stop(self, grace_s: float) -> None:
        """Accept no more streams, and end the remaining streams after the given seconds."""
        if self._server is None:
            return
        self._server.close()
        self._path.unlink(missing_ok=True)
        if self._open:
            await asyncio.wait(self._open, timeout=grace_s)
        for task in list(self._open):
            task.cancel()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, from its opening to its end."""
        first = None
        try:
            if self._user_of(writer.get_extra_info("socket")) in (os.getuid(), 0):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._opening_s):
                        first = await read_frame(reader, MAX_OPENING_BYTES)
            if first is not None:
                decode, serve = self._admit(Opening.of(_content(first, FrameKind.OPENING)))
                await serve(_messages(reader, decode), StreamContext(writer))
                _end(writer, grpc.StatusCode.OK, "")
        except _Aborted:
            pass
        except MarinError as error:
            _end(writer, *to_status(error))
        except Exception as error:
            logger.exception("a stream failed")
            _end(writer, grpc.StatusCode.UNKNOWN, repr(error))
        finally:
            writer.close()


async def _messages(reader: asyncio.StreamReader, decode: Decoder) -> AsyncIterator[Any]:
    while (found := await read_frame(reader, MAX_REQUEST_BYTES)) is not None:
        yield decode(_content(found, FrameKind.MESSAGE))


def _content(found: tuple[FrameKind, bytes], wanted: FrameKind) -> bytes:
    kind, content = found
    if kind is not wanted:
        raise InvalidRequest("a stream begins with its opening, and messages follow")
    return content


def _end(writer: asyncio.StreamWriter, code: grpc.StatusCode, details: str) -> None:
    if not writer.is_closing():
        writer.write(end_frame(code, details))


class _Aborted(Exception):
    """The stream has ended; its status was sent."""


class StreamContext:
    """The part of gRPC's context that servicers use."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def peer(self) -> str:
        """Return the peer in gRPC's format."""
        return "unix:"

    async def write(self, message: Any) -> None:
        """Send a message once there is room for it."""
        await write_frame(self._writer, frame(FrameKind.MESSAGE, message.SerializeToString()))

    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        """End the stream with this status."""
        _end(self._writer, code, details)
        raise _Aborted
