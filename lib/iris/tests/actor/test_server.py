"""The beginning and the end of servers."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from iris.actor import ActorClient, ActorServer
from iris.actor.hosted import HostedActor
from rigging.errors import Conflict, Unavailable

KEY = b"k" * 32


def test_a_stopped_server_is_not_used_again(bench: Any) -> None:
    server = ActorServer(key=KEY)
    server.stop()  # nothing: it was never started
    server.start()
    server.register("bench", bench)
    server.stop()
    with pytest.raises(Conflict, match=r"this ActorServer, at 127.0.0.1:\d+, was stopped; make a new one"):
        server.start()
    with pytest.raises(Conflict, match="was stopped; make a new one"):
        server.register("another", bench)


class Registry:
    """A controller that is away at first."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.away = True

    def register(self, name: str, address: str, metadata: dict[str, str]) -> None:
        del address, metadata
        if self.away:
            raise Unavailable("the controller is away")
        self.names.append(name)

    def unregister(self, name: str, retry: bool) -> None:
        del retry
        self.names.remove(name)


def test_an_actor_whose_endpoint_was_refused_is_not_there(bench: Any, connect: Callable[..., ActorClient]) -> None:
    registry = Registry()
    context: Any = SimpleNamespace(registry=registry, client=None)
    with ActorServer(key=KEY, context=context) as server:
        with pytest.raises(Unavailable, match="the controller is away"):
            server.register("bench", bench)
        registry.away = False
        server.register("bench", bench)
        assert registry.names == ["bench"]
        assert connect(server.address).echo(1) == 1
    assert registry.names == []


def test_all_actors_share_the_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    asked: list[float] = []

    def wait_idle(_: HostedActor, timeout: float) -> bool:
        nonlocal now
        asked.append(timeout)
        now += min(timeout, 1.5)
        return False

    monkeypatch.setattr(HostedActor, "wait_idle", wait_idle)
    server = ActorServer(key=KEY)
    server.start()
    for name in ("a", "b", "c"):
        server.register(name, [])
    monkeypatch.setattr("iris.actor.server.time", SimpleNamespace(monotonic=lambda: now))
    server.stop(grace=2.0)
    assert asked == [2.0, 0.5, 0.0]
