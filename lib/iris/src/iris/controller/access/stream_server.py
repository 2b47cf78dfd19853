"""Serves streams on a Unix socket to processes of the same user; the same servicers and rules as gRPC's server has."""

import asyncio
import logging
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import grpc

from iris.controller.access.interceptor import Behaviour, Decoder, ServerInterceptor
from iris.rpc.framed_stream import FramedStream
from iris.rpc.frames import MAX_OPENING_BYTES, MAX_SOCKET_PATH, FrameKind, Opening, end_frame, frame
from iris.rpc.protocol import MAX_REQUEST_BYTES
from iris.rpc.status_map import to_status
from rigging.errors import InvalidRequest, MarinError

logger = logging.getLogger(__name__)

_OPENING_S: Final = 15.0
_PEER: Final = struct.Struct("3i")

Messages = AsyncIterator[Any]
Serve = Callable[[Messages, "StreamContext"], Awaitable[None]]
Admit = Callable[[Opening], tuple[Callable[[bytes], Any], Serve]]
"""Says how a stream is decoded and served, in whose task it is called. Raises MarinError when it is refused."""


def admit_stream(
    interceptor: ServerInterceptor, methods: Mapping[str, tuple[Behaviour, Decoder]], opening: Opening
) -> tuple[Decoder, Serve]:
    """Return decoder and behaviour of a stream, judged as a gRPC call of that method. Raises MarinError when refused.

    Args:
        interceptor: Applies the rule of the method.
        methods: Behaviour and decoder by method.
        opening: The first frame of the stream.
    """
    known = methods.get(opening.method)
    if known is None:
        raise InvalidRequest(f"{opening.method!r} is no stream of a socket; there are {', '.join(methods)}")
    return interceptor.admit_stream(opening.method, opening.metadata, *known)


def _user_of(connection: socket.socket) -> int:
    _, user, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return int(user)


class StreamServer:
    """The streams of one socket.

    Args:
        path: Where it is made; what was there before is removed.
        admit: Judges who begins a stream, before a message is read.
        opening_s: So long a caller may say nothing.
        user_of: Returns the user id of the process at the other end of a socket.
    """

    def __init__(
        self,
        path: Path,
        admit: Admit,
        opening_s: float = _OPENING_S,
        user_of: Callable[[socket.socket], int] = _user_of,
    ) -> None:
        self.user_of = user_of
        self._path = path
        self.admit = admit
        self.opening_s = opening_s
        self._server: asyncio.Server | None = None
        self._open: set[_Stream] = set()

    def __len__(self) -> int:
        return len(self._open)

    async def start(self) -> None:
        """Listen. Where there can be no such socket, this serves no one, and callers use gRPC."""
        if len(os.fsencode(self._path)) > MAX_SOCKET_PATH:
            return
        loop = asyncio.get_running_loop()
        try:
            self._path.unlink(missing_ok=True)
            self._server = await loop.create_unix_server(lambda: _Stream(self), self._path)
            self._path.chmod(0o600)
        except OSError as error:
            logger.warning("no socket %s (%s): local callers use TCP", self._path, error)

    async def stop(self, grace_s: float) -> None:
        """Take no more streams, and end those that have not ended by themselves after so many seconds."""
        if self._server is None:
            return
        self._server.close()
        self._path.unlink(missing_ok=True)
        tasks = [stream.task for stream in self._open if stream.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
        for stream in list(self._open):
            stream.close()

    def opened(self, stream: "_Stream") -> None:
        self._open.add(stream)

    def closed(self, stream: "_Stream") -> None:
        self._open.discard(stream)


class _Aborted(Exception):
    """The stream has been told how it ended."""


class StreamContext:
    """The part of gRPC's context that servicers use."""

    def __init__(self, stream: "_Stream") -> None:
        self._stream = stream

    async def write(self, message: Any) -> None:
        """Send a message, once there is room for it."""
        await self._stream.write(frame(FrameKind.MESSAGE, message.SerializeToString()))

    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        """End the stream with this status."""
        self._stream.end(code, details)
        raise _Aborted


class _Stream(FramedStream):
    """One connection, from its opening to its end."""

    def __init__(self, server: StreamServer) -> None:
        super().__init__(MAX_OPENING_BYTES)
        self._server = server
        self._late: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._server.opened(self)
        if self._server.user_of(transport.get_extra_info("socket")) in (os.getuid(), 0):
            self._late = asyncio.get_running_loop().call_later(self._server.opening_s, self.close)
        else:
            self.close()

    def take(self, kind: FrameKind, content: bytes) -> None:
        if kind is not (FrameKind.OPENING if self.task is None else FrameKind.MESSAGE):
            raise InvalidRequest("a stream begins with its opening, and messages follow")
        if self.task is not None:
            self.put(content)
            return
        opening = Opening.of(content)
        self.frames.most = MAX_REQUEST_BYTES
        if self._late is not None:
            self._late.cancel()
        self.task = asyncio.create_task(self._serve(opening))

    def refuse(self, error: MarinError) -> None:
        self.end(*to_status(error))

    async def _serve(self, opening: Opening) -> None:
        try:
            self.incoming.decode, serve = self._server.admit(opening)
            await serve(self.incoming, StreamContext(self))
            self.end(grpc.StatusCode.OK, "")
        except _Aborted:
            pass
        except MarinError as error:
            self.end(*to_status(error))
        except Exception as error:
            logger.exception("a stream of %s failed", opening.method)
            self.end(grpc.StatusCode.UNKNOWN, repr(error))
        finally:
            super().close()

    def end(self, code: grpc.StatusCode, details: str) -> None:
        """Say how the stream ended, and close it once that is sent."""
        self.write_last(end_frame(code, details))

    def close(self) -> None:
        """End at once what serves it."""
        if self.task is not None:
            self.task.cancel()
        super().close()

    def eof_received(self) -> bool:
        super().eof_received()
        return self.task is not None

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        if self._late is not None:
            self._late.cancel()
        if self.task is not None:
            self.task.cancel()
        self._server.closed(self)
