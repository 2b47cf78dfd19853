"""A session's stream by the socket of a controller on the worker's machine, with what a session uses of a gRPC call."""

import asyncio
from typing import Any, Final

import grpc
import grpc.aio

from iris.rpc import iris_pb2 as pb
from iris.rpc.framed_stream import FramedStream
from iris.rpc.frames import FrameKind, Opening, frame, read_end
from iris.rpc.protocol import MAX_MESSAGE_BYTES, call_metadata
from iris.rpc.status_map import error_of_status
from rigging.errors import MarinError

_METHOD: Final = "/iris.v1.WorkerService/Session"
_BROKEN: Final = (grpc.StatusCode.UNAVAILABLE, "the connection to the controller broke")


class _Stream(FramedStream):
    def __init__(self) -> None:
        super().__init__(MAX_MESSAGE_BYTES)
        self.incoming.decode = pb.ControllerMessage.FromString
        self.ended = _BROKEN

    def take(self, kind: FrameKind, content: bytes) -> None:
        if kind is FrameKind.END:
            self.ended = read_end(content)
            self.incoming.close()
        else:
            self.put(content)

    def refuse(self, error: MarinError) -> None:
        self.ended = (grpc.StatusCode.UNAVAILABLE, str(error))
        self.close()


class SocketCall:
    """One session with the controller. Use `connect`."""

    def __init__(self, stream: _Stream) -> None:
        self._stream = stream

    @classmethod
    async def connect(cls, path: str, token: str) -> "SocketCall":
        """Begin a session. Raises OSError when the controller does not listen there."""
        _, stream = await asyncio.get_running_loop().create_unix_connection(_Stream, path)
        await stream.write(Opening(_METHOD, call_metadata(token)).to_frame())
        return cls(stream)

    async def write(self, message: pb.WorkerMessage) -> None:
        """Send a message, once there is room for it. Raises Unavailable when the stream has ended."""
        await self._stream.write(frame(FrameKind.MESSAGE, message.SerializeToString()))

    async def read(self) -> Any:
        """The next message, or `grpc.aio.EOF`. Raises MarinError when the controller ended the stream with an error."""
        try:
            return await anext(self._stream.incoming)
        except StopAsyncIteration:
            code, details = self._stream.ended
            if code is grpc.StatusCode.OK:
                return grpc.aio.EOF
            raise error_of_status(code, details) from None

    async def code(self) -> grpc.StatusCode:
        """Return the status with which the stream ended."""
        return self._stream.ended[0]

    async def details(self) -> str:
        """Return the controller's explanation of the end."""
        return self._stream.ended[1]

    async def done_writing(self) -> None:
        """Say that no more messages will come; the controller then ends the stream."""
        self._stream.close_half()

    def cancel(self) -> None:
        """Close the stream."""
        self._stream.close()
