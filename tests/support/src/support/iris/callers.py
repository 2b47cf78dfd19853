"""The controller's and the caller's side of commands in tasks, for tests of the worker."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from iris.rpc.generated import exec_pb2 as pb
from iris.rpc.generated import exec_pb2_grpc


class Caller:
    """One caller of a command. It collects the output."""

    def __init__(self, start: pb.ExecStart) -> None:
        self.inputs: asyncio.Queue[pb.ExecInput | None] = asyncio.Queue()
        self.inputs.put_nowait(pb.ExecInput(start=start))
        self.stdout, self.stderr = bytearray(), bytearray()
        self.end: pb.ExecEnd | None = None
        self.is_over = False
        self.hang_up: Callable[[], None] = lambda: None
        """Go away, like a client that is killed."""
        self.reads = asyncio.Event()
        self.reads.set()
        self._changed = asyncio.Condition()

    def send(self, data: bytes) -> None:
        self.inputs.put_nowait(pb.ExecInput(stdin=data))

    def end_input(self) -> None:
        self.inputs.put_nowait(pb.ExecInput(stdin_ends=True))

    def resize(self, rows: int, columns: int) -> None:
        self.inputs.put_nowait(pb.ExecInput(window=pb.WindowSize(rows=rows, columns=columns)))

    async def until(self, text: bytes, timeout_s: float = 20.0) -> None:
        """Wait for this text in stdout."""
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(lambda: text in self.stdout or self.is_over)
        assert text in self.stdout, (self.stdout, self.stderr, self.end)

    async def ended(self, timeout_s: float = 30.0) -> pb.ExecEnd:
        """Wait for the end, and return it."""
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(lambda: self.is_over)
        assert self.end is not None, "the worker broke the connection"
        return self.end

    async def take(self, outputs: AsyncIterator[pb.ExecOutput]) -> None:
        """Collect the worker's messages."""
        try:
            async for message in outputs:
                await self.reads.wait()
                self.stdout += message.stdout
                self.stderr += message.stderr
                if message.HasField("end"):
                    self.end = message.end
                    self.inputs.put_nowait(None)
                    self.is_over = True
                async with self._changed:
                    self._changed.notify_all()
        finally:
            self.is_over = True
            async with self._changed:
                self._changed.notify_all()


class CallerService(exec_pb2_grpc.ExecServiceServicer):
    """Lets workers attach to callers."""

    def __init__(self) -> None:
        self._callers: dict[str, Caller] = {}

    def call(
        self, attempt_id: str, argv: Sequence[str], window: tuple[int, int] | None = None, term: str = ""
    ) -> tuple[str, Caller]:
        """Add a caller; return the id by which a worker attaches to it."""
        size = None if window is None else pb.WindowSize(rows=window[0], columns=window[1])
        caller = Caller(pb.ExecStart(attempt_id=attempt_id, argv=argv, terminal=size, term=term))
        name = f"exec{len(self._callers)}"
        self._callers[name] = caller
        return name, caller

    def Exec(self, request_iterator: Any, context: Any) -> Any:
        raise NotImplementedError

    def Inspect(self, request: Any, context: Any) -> Any:
        raise NotImplementedError

    async def Attach(self, request_iterator: AsyncIterator[pb.ExecOutput], context: Any) -> AsyncIterator[pb.ExecInput]:
        del context
        caller = self._callers[(await anext(request_iterator)).exec_id]
        taking = asyncio.create_task(caller.take(request_iterator))
        try:
            while (message := await caller.inputs.get()) is not None:
                yield message
        finally:
            taking.cancel()
