"""Calls of one actor over a connection that holds."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from fray.testing.waiting import eventually
from iris.actor import ActorClient, ActorServer, ActorStopped
from rigging.errors import AlreadyExists, Conflict, InvalidRequest, NotFound

WAIT_S = 20.0
KEY = b"k" * 32


def test_arguments_and_results_of_every_size_come_whole(client: ActorClient) -> None:
    assert client.echo() is None
    assert client.echo(value={"a": (1, 2.5)}) == {"a": (1, 2.5)}
    captured = 20
    assert client.apply(lambda: captured + 1) == 21
    for size in (0, 1, 65_000, 70_000, 524_288, 3_000_001):
        data = bytes(range(256)) * (size // 256) + b"!" * (size % 256)
        assert client.echo(data) == data


def test_one_call_at_a_time_unless_more_are_allowed(
    server: ActorServer, client: ActorClient, bench: Any, connect: Callable[..., ActorClient]
) -> None:
    together = type(bench)()
    server.register("together", together, max_concurrency=3)
    wide = connect(server.address, "together")
    calls = [each.wait.remote() for each in (client, wide) for _ in range(5)]
    eventually(lambda: (bench.inside, together.inside) == (1, 3), "as many are inside as may be")
    for each in (bench, together):
        each.gate.set()
    for call in calls:
        call.result(WAIT_S)
    assert (bench.most, together.most) == (1, 3)


def test_what_is_not_there_is_refused(
    client: ActorClient, connect: Callable[..., ActorClient], server: ActorServer
) -> None:
    with pytest.raises(InvalidRequest, match="'subtract' of actor 'bench' did not run: the actor has no public method"):
        client.subtract(1)
    with pytest.raises(InvalidRequest, match="no public method"):
        client.call("_hidden").result(WAIT_S)
    with pytest.raises(AttributeError, match="_hidden"):
        client._hidden()
    with pytest.raises(NotFound, match="'echo' of actor 'other' did not run: no actor of that name"):
        connect(server.address, "other").echo()
    with pytest.raises(InvalidRequest, match=r"cannot pickle the arguments"):
        client.echo(threading.Lock())
    with pytest.raises(AlreadyExists, match="has an actor 'bench' already"):
        server.register("bench", object())


def test_shutdown_ends_waiting_calls_lets_running_ones_finish_and_refuses_new_ones(
    connect: Callable[..., ActorClient], bench: Any
) -> None:
    server = ActorServer(key=KEY)
    with pytest.raises(Conflict, match="has not been started"):
        _ = server.address
    server.register("bench", bench)
    server.start()
    client = connect(server.address)
    running, queued = client.wait.remote(), client.note.remote("never")
    eventually(lambda: bench.inside, "one is inside")
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    with pytest.raises(ActorStopped, match="'note' of actor 'bench' did not run: the actor was shut down"):
        queued.result(WAIT_S)
    with pytest.raises(ActorStopped):
        client.note("never")
    bench.gate.set()
    assert running.result(WAIT_S) == 1
    stopping.join(WAIT_S)
    assert not stopping.is_alive()
    assert bench.seen == ["waited"]
    server.stop()
