"""A session's stream over the socket of a controller on the same machine. Implements the part of a gRPC call that
sessions use.
"""

import asyncio
from typing import Any, Final

import grpc
import grpc.aio

from iris.rpc.frames import FrameKind, Opening, frame, read_end, read_frame, write_frame
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.protocol import MAX_MESSAGE_BYTES, call_metadata
from iris.rpc.status_map import error_of_status
from rigging.errors import InvalidRequest, Unavailable

_METHOD: Final = "/iris.v1.WorkerService/Session"
_BROKEN: Final = (grpc.StatusCode.UNAVAILABLE, "the connection to the controller broke")


class SocketCall:
    """One session with the controller. Create it with `connect`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ended = _BROKEN
        self._said_all = False

    @classmethod
    async def connect(cls, path: str, token: str) -> "SocketCall":
        """Open a session. Raises OSError if no controller listens on the socket."""
        call = cls(*await asyncio.open_unix_connection(path))
        await write_frame(call._writer, Opening(_METHOD, call_metadata(token)).to_frame())
        return call

    async def write(self, message: pb.WorkerMessage) -> None:
        """Send a message as soon as the buffer has room. Raises Unavailable if the stream has ended."""
        if self._said_all:
            raise Unavailable("the connection is closed")
        await write_frame(self._writer, frame(FrameKind.MESSAGE, message.SerializeToString()))

    async def read(self) -> Any:
        """Return the next message, or `grpc.aio.EOF`. Raises MarinError if the controller ended the stream with an
        error.
        """
        try:
            found = await read_frame(self._reader, MAX_MESSAGE_BYTES)
        except InvalidRequest as error:
            self._ended = (grpc.StatusCode.UNAVAILABLE, str(error))
            self.cancel()
            found = None
        if found is not None:
            kind, content = found
            if kind is not FrameKind.END:
                return pb.ControllerMessage.FromString(content)
            self._ended = read_end(content)
        code, details = self._ended
        if code is grpc.StatusCode.OK:
            return grpc.aio.EOF
        raise error_of_status(code, details)

    async def code(self) -> grpc.StatusCode:
        """Return the status with which the stream ended."""
        return self._ended[0]

    async def details(self) -> str:
        """Return the controller's explanation for the end of the stream."""
        return self._ended[1]

    async def done_writing(self) -> None:
        """Half-close the stream; the controller then ends it."""
        self._said_all = True
        if not self._writer.is_closing():
            self._writer.write_eof()

    def cancel(self) -> None:
        """Close the stream."""
        self._writer.close()
