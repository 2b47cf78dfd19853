"""A seeded network between the controller and its workers and clients, with the semantics of gRPC over TCP.

Messages of one stream arrive in order, late, or not at all: a broken stream loses messages in transit, and each side
detects the break after some time (the keepalive), or only by missing messages. Calls are lost in either direction, and
may arrive twice. Streams and calls can overtake each other. A partition holds all messages of one peer, in one
direction or both. A partition longer than the keepalive breaks the peer's streams.
"""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final

from iris.rpc.protocol import KEEPALIVE_MS, call_metadata
from iris.sim.server import Server
from iris.sim.world import Node, World
from rigging.errors import MarinError, Unavailable

KEEPALIVE_S: Final = 2 * KEEPALIVE_MS / 1000
"""Time to detect a silent connection: the interval and the timeout of a ping."""

_END: Final = object()


@dataclass(frozen=True, slots=True)
class Weather:
    """The behaviour of the network; probabilities are per call or message.

    Args:
        delay_s: Usual one-way delay. slow: Probability of a message delayed by up to `slow_s`.
        loss: Probability of losing a call's request or its answer. twice: Probability of a request that arrives twice.
    """

    delay_s: float = 0.005
    slow: float = 0.0
    slow_s: float = 3.0
    loss: float = 0.0
    twice: float = 0.0


class Network:
    """Carries calls and streams to the current controller."""

    def __init__(self, world: World, source: random.Random, weather: Weather) -> None:
        self.world = world
        self.weather = weather
        self.server: Server | None = None
        self.streams: dict[Stream, None] = {}
        self._source = source
        self._cut: dict[tuple[str, bool], float] = {}

    # ---- faults ----

    def partition(self, peer: str, until_s: float, up: bool = True, down: bool = True) -> None:
        """Hold all messages of `peer` until a time; `up` is the direction to the controller."""
        for direction, wanted in ((True, up), (False, down)):
            if wanted:
                self._cut[(peer, direction)] = max(until_s, self._cut.get((peer, direction), 0))
        noticed = self.world.now + KEEPALIVE_S * self._source.uniform(0.5, 1)
        for stream in list(self.streams):
            if stream.peer == peer and until_s > noticed:
                self.world.call_at(noticed, self._keepalive, stream)
        self.world.call_at(until_s, self._heal, peer)

    def reset(self, peer: str) -> None:
        """Break the peer's streams; both sides detect it soon."""
        for stream in list(self.streams):
            if stream.peer == peer:
                stream.break_off(self._source.uniform(0, 0.5), self._source.uniform(0, 0.5))

    def still(self) -> None:
        """Disable all faults from now on and end every partition."""
        self.weather = Weather()
        peers = {peer: None for peer, _ in self._cut}
        self._cut.clear()
        for peer in peers:
            self._heal(peer)

    def blocked_until(self, peer: str, up: bool) -> float:
        """Return when the connection of `peer` is restored; a past time if it is open."""
        return self._cut.get((peer, up), 0.0)

    def delay(self) -> float:
        weather = self.weather
        if weather.slow and self._source.random() < weather.slow:
            return self._source.uniform(0, weather.slow_s)
        return weather.delay_s * self._source.uniform(0.5, 2)

    def _keepalive(self, stream: "Stream") -> None:
        if max(self.blocked_until(stream.peer, True), self.blocked_until(stream.peer, False)) > self.world.now:
            # Each side's pings fail by themselves; the controller may not learn of it before the worker is back.
            stream.break_off(self._source.uniform(0, 5), self._source.choice([0.5, 5.0, 60.0]))

    def _heal(self, peer: str) -> None:
        for stream in list(self.streams):
            if stream.peer == peer:
                stream.heal()

    # ---- streams ----

    def open_stream(self, node: Node, peer: str, token: str) -> "Stream":
        stream = Stream(self, node, peer, token)
        self.streams[stream] = None
        self.world.call_in(self.delay(), self._arrive, stream)
        return stream

    def _arrive(self, stream: "Stream") -> None:
        blocked = self.blocked_until(stream.peer, True)
        if blocked > self.world.now:
            self.world.call_at(min(blocked, self.world.now + KEEPALIVE_S), self._arrive_late, stream)
            return
        if self.server is None or self.server.node.is_dying:
            stream.break_off(self.delay(), None)
            return
        if not stream.is_broken:
            stream.accept(self.server)

    def _arrive_late(self, stream: "Stream") -> None:
        if self.blocked_until(stream.peer, True) > self.world.now:
            stream.break_off(0, None)
        else:
            self._arrive(stream)

    # ---- calls ----

    async def call(
        self, node: Node, peer: str, token: str, method: str, request: Any, timeout_s: float, attempt_id: str = ""
    ) -> Any:
        """Make one unary call. Raises MarinError: the server's own, or Unavailable.

        Args:
            node: The caller.
            peer: Its name, for partitions.
            token: The caller's token.
            method: E.g. "JobService/SubmitJob".
            request: The message.
            timeout_s: Timeout in seconds.
            attempt_id: The calling attempt; empty for none.
        """
        call = _Call(self, node, peer, call_metadata(token, attempt_id), f"/iris.v1.{method}", request)
        try:
            async with asyncio.timeout(timeout_s):
                return await call.answer
        except TimeoutError:
            raise Unavailable(f"{method}: no answer within {timeout_s:g} s") from None
        finally:
            call.give_up()

    def chance(self, probability: float) -> bool:
        return bool(probability) and self._source.random() < probability


class _Call:
    """One unary call in transit: at most one answer, possibly two executions."""

    def __init__(
        self, network: Network, node: Node, peer: str, metadata: tuple[tuple[str, str], ...], method: str, request: Any
    ) -> None:
        self.answer: asyncio.Future[Any] = node.create_future()
        self._network = network
        self._peer = peer
        self._metadata = metadata
        self._method = method
        self._request = request
        self._running: list[tuple[Server, asyncio.Task[Any]]] = []
        self._over = False
        world, weather = network.world, network.weather
        if not network.chance(weather.loss):
            world.call_in(network.delay(), self._arrive)
        if network.chance(weather.twice):
            world.call_in(network.delay() + network.delay(), self._arrive)

    def give_up(self) -> None:
        """Cancel the call; its execution is notified."""
        self._over = True
        for server, task in self._running:
            self._network.world.call_in(self._network.delay(), server.cancel, task)

    def _arrive(self) -> None:
        network = self._network
        blocked = network.blocked_until(self._peer, True)
        if self._over:
            return
        if blocked > network.world.now:
            network.world.call_at(blocked, self._arrive)
        elif network.server is None or network.server.node.is_dying:
            network.world.call_in(network.delay(), self._fail, Unavailable("no controller listens"))
        else:
            server = network.server
            task = server.start_call(self._method, self._request, self._metadata, self._send_back)
            self._running.append((server, task))
            server.node.on_death.append(self._server_died)

    def _server_died(self) -> None:
        self._network.world.call_in(self._network.delay(), self._fail, Unavailable("the connection was reset"))

    def _send_back(self, answer: Any, error: MarinError | None) -> None:
        network = self._network
        if network.chance(network.weather.loss):
            return
        at = max(network.blocked_until(self._peer, False), network.world.now) + network.delay()
        network.world.call_at(at, self._come_back, answer, error)

    def _come_back(self, answer: Any, error: MarinError | None) -> None:
        if error is not None:
            self._fail(error)
        elif not self.answer.done():
            self.answer.set_result(answer)

    def _fail(self, error: MarinError) -> None:
        if not self._over and not self.answer.done():
            self.answer.set_exception(error)


class Stream:
    """One bidirectional stream, with the interface of grpc.aio's call object for the worker."""

    def __init__(self, network: Network, node: Node, peer: str, token: str) -> None:
        self.peer = peer
        self.token = token
        self._network = network
        self._node = node
        self._up = _Pipe(network, peer, True, self._at_server)
        self._down = _Pipe(network, peer, False, self._at_worker)
        self._server: Server | None = None
        self._task: asyncio.Task[Any] | None = None
        self._requests: deque[Any] = deque()  # at the server, not yet read
        self._request_wake: asyncio.Future[None] | None = None
        self._responses: deque[Any] = deque()  # at the worker, not yet read
        self._response_wake: asyncio.Future[None] | None = None
        self._error: MarinError | None = None  # what the worker knows of the end
        node.on_death.append(self._worker_died)

    @property
    def is_broken(self) -> bool:
        """Whether the connection broke, or its worker died."""
        return self._up.is_broken

    # ---- the worker's side ----

    async def write(self, message: Any) -> None:
        """Pass a message to the transport. Raises MarinError if the stream is known to have ended."""
        await asyncio.sleep(0)
        if self._error is not None:
            raise self._error
        self._up.send(message)
        if self._network.chance(self._network.weather.twice) and message.observations and not message.logs:
            self._up.send(message)

    async def read(self) -> Any:
        """Return the next message. Raises MarinError if the stream has ended."""
        while not self._responses:
            if self._error is not None:
                raise self._error
            self._response_wake = self._node.create_future()
            await self._response_wake
        return self._responses.popleft()

    async def done_writing(self) -> None:
        self._up.send(_END)

    def cancel(self) -> None:
        """Cancel the stream; the server is notified after the messages sent before."""
        if not self._node.is_dying:
            self._up.send(_END)
            self._network.world.call_in(self._network.delay() * 2, self._cancel_serving)
        self._error = self._error or Unavailable("the call was cancelled")

    # ---- the server's side ----

    def accept(self, server: Server) -> None:
        self._server = server
        self._task = server.start_stream(self.token, self._read_requests(), self._respond, self._finish)
        server.node.on_death.append(self._server_died)

    async def _read_requests(self) -> AsyncIterator[Any]:
        while True:
            while self._requests:
                item = self._requests.popleft()
                if item is _END:
                    return
                yield item
            assert self._server is not None
            self._request_wake = self._server.node.create_future()
            await self._request_wake

    async def _respond(self, message: Any) -> None:
        self._down.send(message)

    def _finish(self, error: MarinError | None) -> None:
        self._down.send((_END, error))

    # ---- the end ----

    def break_off(self, worker_learns_s: float, server_learns_s: float | None) -> None:
        """Lose the messages in transit. The sides detect the loss after these times (None if there is no server)."""
        if self._up.is_broken:
            return
        self._up.is_broken = self._down.is_broken = True
        world = self._network.world
        world.call_in(worker_learns_s, self._tell_worker, Unavailable("the connection broke"))
        if server_learns_s is not None:
            world.call_in(server_learns_s, self._cancel_serving)
        self._network.streams.pop(self, None)

    def heal(self) -> None:
        self._up.flush()
        self._down.flush()

    def _worker_died(self) -> None:
        self.break_off(0, self._network.delay() * 10)

    def _server_died(self) -> None:
        blocked = self._network.blocked_until(self.peer, False) > self._network.world.now
        self.break_off(KEEPALIVE_S if blocked else self._network.delay(), None)

    def _cancel_serving(self) -> None:
        if self._server is not None and self._task is not None:
            self._server.cancel(self._task)

    def _tell_worker(self, error: MarinError) -> None:
        if self._error is None:
            self._error = error
        _wake(self._node, self._response_wake)

    def _at_server(self, item: Any) -> None:
        if self._server is None:
            self._requests.append(item)  # Hello overtook the stream's own arrival
        elif not self._server.node.is_dying:
            self._requests.append(item)
            _wake(self._server.node, self._request_wake)

    def _at_worker(self, item: Any) -> None:
        if isinstance(item, tuple):
            self._tell_worker(item[1] or Unavailable("the controller ended the session"))
            self._network.streams.pop(self, None)
            return
        self._responses.append(item)
        _wake(self._node, self._response_wake)


def _wake(node: Node, future: "asyncio.Future[None] | None") -> None:
    if future is not None and not future.done() and not node.is_dying:
        future.set_result(None)


class _Pipe:
    """One direction of a stream: ordered, delayed, held by partitions, lost when broken."""

    def __init__(self, network: Network, peer: str, up: bool, deliver: Callable[[Any], None]) -> None:
        self.is_broken = False
        self._network = network
        self._peer = peer
        self._is_up = up
        self._deliver = deliver
        self._held: deque[Any] = deque()
        self._last_s = 0.0

    def send(self, item: Any) -> None:
        network = self._network
        self._last_s = max(self._last_s + 1e-6, network.world.now + network.delay())
        network.world.call_at(self._last_s, self._arrive, item)

    def flush(self) -> None:
        """Deliver held messages at the end of a partition."""
        held, self._held = self._held, deque()
        for item in held:
            self._arrive(item)

    def _arrive(self, item: Any) -> None:
        network = self._network
        if self.is_broken:
            return
        if self._held or network.blocked_until(self._peer, self._is_up) > network.world.now:
            self._held.append(item)
        else:
            self._deliver(item)
