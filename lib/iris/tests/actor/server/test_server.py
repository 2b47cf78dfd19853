"""The beginning and the end of servers."""

from types import SimpleNamespace
from typing import Any

import pytest

from iris.actor import ActorServer
from iris.actor.server.hosted import HostedActor
from rigging.errors import Conflict, InvalidRequest, NotFound, Unavailable

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
    """Where actors are published, of a controller that is away at first and at the end."""

    def __init__(self) -> None:
        self.away = True
        self.registered: list[tuple[str, str, dict[str, str]]] = []
        self.forgotten: list[tuple[str, bool]] = []

    def register(self, name: str, address: str, metadata: dict[str, str]) -> None:
        if self.away:
            raise Unavailable("the controller is away")
        self.registered.append((name, address, metadata))

    def unregister(self, name: str, retry: bool) -> None:
        self.forgotten.append((name, retry))
        raise Unavailable("the controller is away")


def test_actors_are_published_with_their_names_unless_they_are_not_to_be(bench: Any) -> None:
    """One whose endpoint was refused is not there; a controller that is away at the end keeps nobody from leaving."""
    registry = Registry()
    context: Any = SimpleNamespace(registry=registry, client=None)
    with ActorServer(key=KEY, context=context) as server:
        with pytest.raises(Unavailable, match="the controller is away"):
            server.register("bench", bench)
        with pytest.raises(NotFound, match="no actor 'bench'; it has none"):
            server.own_client("bench")
        registry.away = False
        server.register("bench", bench, metadata={"shard": "1"})
        server.register("plain", bench)
        server.register("hidden", bench, publish=False)
        address = server.address
        assert server.own_client("hidden").echo(3) == 3
    plain = ("plain", address, {"actor": "plain"})
    assert registry.registered == [("bench", address, {"shard": "1", "actor": "bench"}), plain]
    assert registry.forgotten == [("bench", False), ("plain", False)]


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
    monkeypatch.setattr("iris.actor.server.server.time", SimpleNamespace(monotonic=lambda: now))
    server.stop(grace=2.0)
    assert asked == [2.0, 0.5, 0.0]


def test_what_a_server_cannot_do_is_said_with_what_it_has(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with ActorServer(key=KEY) as server:
        with pytest.raises(Conflict, match=rf"this ActorServer was started before, at {server.address}"):
            server.start()
        with pytest.raises(InvalidRequest, match="name of an actor: must be a text that is not"):
            server.register("", bench)
        for wrong in (0, -1):
            with pytest.raises(InvalidRequest, match=f"actor 'bench': max_concurrency must be at least 1, not {wrong}"):
                server.register("bench", bench, max_concurrency=wrong)
        server.register("bench", bench)
        server.register("other", bench)
        with pytest.raises(NotFound, match="no actor 'none'; it has bench, other"):
            server.own_client("none")
        port = int(server.address.rpartition(":")[2])
        taken = ActorServer(port=port, key=KEY)
        with pytest.raises(Conflict, match=rf"cannot listen on 127\.0\.0\.1:{port}: port taken"):
            taken.start()
    monkeypatch.setenv("IRIS_ACTOR_HOST", "127.0.0.2")
    with ActorServer(key=KEY) as elsewhere:
        assert elsewhere.address.startswith("127.0.0.2:")
    with ActorServer("127.0.0.3", key=KEY) as given:
        assert given.address.startswith("127.0.0.3:")
