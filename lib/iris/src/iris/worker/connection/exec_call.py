"""The connection to the caller of a command in an attempt: a stream to the controller, which passes messages on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from iris.inspection.running import Inspection
from iris.rpc.channels import open_aio_channel
from iris.rpc.controller_address import ControllerAddress
from iris.rpc.generated import exec_pb2 as pb
from iris.rpc.generated import exec_pb2_grpc
from iris.rpc.protocol import CHANNEL_OPTIONS, call_metadata
from iris.rpc.status_map import from_rpc_error
from iris.worker.exec.commands import AttemptCommands, CommandRequest
from rigging.errors import Unavailable


class ExecCall:
    """One caller's connection (`exec.commands.CommandCall`).

    It has a channel of its own, so that a command's output does not delay heartbeats.

    Args:
        place: The controller.
        exec_id: The controller's name of the command.
    """

    def __init__(self, place: ControllerAddress, exec_id: str) -> None:
        self._channel = open_aio_channel(place, CHANNEL_OPTIONS)
        call: Any = exec_pb2_grpc.ExecServiceStub(self._channel).Attach(metadata=call_metadata(place.token))
        self._call = call
        self._exec_id = exec_id
        self._writing = asyncio.Lock()
        self.gone = asyncio.Event()
        call.add_done_callback(lambda _: self.gone.set())

    async def request(self) -> CommandRequest | None:
        await self._write(pb.ExecOutput(exec_id=self._exec_id))
        message = await self._read()
        if message is None or message.WhichOneof("kind") != "start":
            return None
        start = message.start
        window = (start.terminal.rows, start.terminal.columns) if start.HasField("terminal") else None
        inspection = Inspection(start.inspect.what, start.inspect.seconds) if start.HasField("inspect") else None
        return CommandRequest(start.attempt_id, tuple(start.argv), window, start.term, inspection)

    async def inputs(self) -> AsyncIterator[bytes | tuple[int, int] | None]:
        while (message := await self._read()) is not None:
            kind = message.WhichOneof("kind")
            if kind == "stdin":
                yield message.stdin
            elif kind == "stdin_ends":
                yield None
            elif kind == "window":
                yield message.window.rows, message.window.columns

    async def send_output(self, data: bytes, is_stderr: bool) -> None:
        await self._write(pb.ExecOutput(stderr=data) if is_stderr else pb.ExecOutput(stdout=data))

    async def send_end(self, code: int, number: int, error: str) -> None:
        await self._write(pb.ExecOutput(end=pb.ExecEnd(exit_code=code, exit_signal=number, error=error)))
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
            await self._call.done_writing()
            await self.gone.wait()

    async def close(self) -> None:
        await self._channel.close()

    async def _read(self) -> pb.ExecInput | None:
        try:
            message = await self._call.read()
        except (grpc.RpcError, asyncio.InvalidStateError):
            return None
        return None if message is grpc.aio.EOF else message

    async def _write(self, message: pb.ExecOutput) -> None:
        try:
            async with self._writing:
                await self._call.write(message)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error
        except asyncio.InvalidStateError as error:
            raise Unavailable("the controller ended the call") from error


def serve_exec(commands: AttemptCommands, exec_id: str, place: ControllerAddress | None) -> None:
    """Begin or end a command.

    Args:
        commands: The worker's commands.
        exec_id: The controller's name of the command.
        place: The controller; None if the caller has gone.
    """
    if place is None:
        commands.end(exec_id)
    else:
        commands.begin(ExecCall(place, exec_id), exec_id)
