import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from iris.actor import ActorClient, ActorServer
from support.iris.async_tests import pytest_pyfunc_call
from support.iris.loops import ShiftedLoop
from support.iris.proxy import TcpProxy, tcp_proxy

__all__ = ["pytest_pyfunc_call", "runner"]

KEY = b"k" * 32
WAIT_S = 20.0


class Bench:
    """An actor whose methods the tests call."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.gate = threading.Event()
        self.inside = 0
        self.most = 0
        self.lock = threading.Lock()

    def note(self, item: Any) -> int:
        self.seen.append(item)
        return len(self.seen)

    def echo(self, value: Any = None) -> Any:
        return value

    def size(self, data: bytes) -> int:
        self.seen.append(len(data))
        return len(data)

    def make(self, size: int) -> bytes:
        return b"\x07" * size

    def wait(self) -> int:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        assert self.gate.wait(WAIT_S)
        with self.lock:
            self.inside -= 1
        return self.note("waited")

    def fail(self, where: str) -> None:
        def look_up_the_shards() -> None:
            raise LookupError(f"no shards in {where}")

        look_up_the_shards()

    def leave(self) -> None:
        raise SystemExit(4)

    def apply(self, function: Callable[[], Any]) -> Any:
        return function()

    def _hidden(self) -> None:
        raise AssertionError("a private method was called")


@pytest.fixture
def loop() -> ShiftedLoop:
    """The loop of coroutine tests."""
    return ShiftedLoop()


@pytest.fixture
def runner(loop: ShiftedLoop) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        yield runner


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def server(bench: Bench) -> Iterator[ActorServer]:
    with ActorServer(key=KEY) as running:
        running.register("bench", bench)
        yield running
        bench.gate.set()


@pytest.fixture
def connect() -> Iterator[Callable[..., ActorClient]]:
    """Return a function that makes clients, closed at the test's end: `connect(address, actor="bench", key=KEY)`."""
    made: list[ActorClient] = []

    def make(address: str, actor: str = "bench", key: bytes = KEY, **options: Any) -> ActorClient:
        made.append(ActorClient.at(address, actor, key=key, **options))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def client(server: ActorServer, connect: Callable[..., ActorClient]) -> ActorClient:
    return connect(server.address)


@pytest.fixture
def proxy(server: ActorServer) -> Iterator[TcpProxy]:
    """A proxy to the server that a test can cut."""
    with tcp_proxy(server.address) as running:
        yield running


@pytest.fixture
def through(proxy: TcpProxy, connect: Callable[..., ActorClient]) -> ActorClient:
    """A client that connects through the proxy."""
    return connect(proxy.address)
