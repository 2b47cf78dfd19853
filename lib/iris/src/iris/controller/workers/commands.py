"""Connects callers of commands in tasks with the workers that run them."""

import asyncio
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from iris.controller.workers.orders import WorkerOrders
from iris.domain.ids import AttemptId, WorkerId
from rigging.errors import NotFound, Unavailable

Message = TypeVar("Message")
Input = TypeVar("Input")
Output = TypeVar("Output")

ATTACH_S: Final = 10.0


class HandOff(Generic[Message]):
    """Passes messages from one task to another, one at a time, so that a slow receiver slows down the sender."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._closed = False
        self._filled, self._emptied = asyncio.Event(), asyncio.Event()
        self._emptied.set()

    async def put(self, message: Message) -> bool:
        """Pass on a message when the one before was taken; return False if the receiver has gone."""
        await self._emptied.wait()
        if self._closed:
            return False
        self._messages.append(message)
        self._emptied.clear()
        self._filled.set()
        return True

    async def get(self) -> Message | None:
        """Return the next message; None after `close`."""
        await self._filled.wait()
        if not self._messages:
            return None
        message = self._messages.pop()
        self._emptied.set()
        if not self._closed:
            self._filled.clear()
        return message

    def close(self) -> None:
        """End the passing, after a message that was put already."""
        self._closed = True
        self._filled.set()
        self._emptied.set()


class CommandRelay(Generic[Input, Output]):
    """The two directions between a caller and the worker of one command."""

    def __init__(self, exec_id: str, worker_id: WorkerId, attempt_id: AttemptId) -> None:
        self.exec_id = exec_id
        self.worker_id = worker_id
        self.attempt_id = attempt_id
        self.inputs = HandOff[Input]()
        self.outputs = HandOff[Output]()
        self._attached = asyncio.Event()

    def attach(self) -> None:
        """Record that the worker has answered."""
        self._attached.set()

    async def until_attached(self) -> None:
        """Wait for the worker. Raise Unavailable if it does not answer."""
        try:
            async with asyncio.timeout(ATTACH_S):
                await self._attached.wait()
        except TimeoutError:
            raise Unavailable(
                f"worker {self.worker_id} did not answer within {ATTACH_S:g} s: it is busy, or its release runs no "
                "commands in tasks"
            ) from None

    def close(self) -> None:
        """End both directions."""
        self.inputs.close()
        self.outputs.close()


class CommandRelays(Generic[Input, Output]):
    """All open relays.

    Args:
        orders_of: Returns the orders of a worker; None if it is not connected.
    """

    def __init__(self, orders_of: Callable[[WorkerId], WorkerOrders | None]) -> None:
        self._orders_of = orders_of
        self._open: dict[str, CommandRelay[Input, Output]] = {}

    @contextmanager
    def opened(self, worker_id: WorkerId, attempt_id: AttemptId) -> Iterator[CommandRelay[Input, Output]]:
        """Context manager: open a relay and ask its worker to attach. Raise Unavailable if that is not connected."""
        relay = CommandRelay[Input, Output](secrets.token_hex(16), worker_id, attempt_id)
        self._open[relay.exec_id] = relay
        try:
            orders = self._orders_of(worker_id)
            if orders is None:
                raise Unavailable(f"worker {worker_id} is not connected now; its task may be running, so try again")
            orders.attach(relay.exec_id)
            yield relay
        finally:
            del self._open[relay.exec_id]
            relay.close()
            # The end of its call would come after input that the command does not read.
            if (orders := self._orders_of(worker_id)) is not None:
                orders.detach(relay.exec_id)

    def find(self, exec_id: str) -> CommandRelay[Input, Output]:
        """Return an open relay for its worker. Raise NotFound if its caller has gone."""
        relay = self._open.get(exec_id)
        if relay is None:
            raise NotFound("the caller of this command has gone")
        return relay
