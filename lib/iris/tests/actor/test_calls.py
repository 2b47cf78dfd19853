"""Calls of one actor over a connection that holds."""

import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from fray.testing.waiting import eventually
from iris.actor import ActorClient, ActorServer, ActorStopped, RemoteTraceback
from rigging.errors import AlreadyExists, Conflict, DeadlineExceeded, InvalidRequest, NotFound

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


def test_calls_of_one_thread_run_in_the_order_they_were_made(client: ActorClient, bench: Any) -> None:
    calls = [client.note.remote(number) for number in range(1000)]
    assert [call.result(WAIT_S) for call in calls] == list(range(1, 1001))
    assert bench.seen == list(range(1000))


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


def test_an_exception_is_itself_with_the_actors_traceback(client: ActorClient) -> None:
    with pytest.raises(LookupError, match="no shards in the bucket") as caught:
        client.fail("the bucket")
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert "look_up_the_shards" in "".join(traceback.format_exception(caught.value))
    with pytest.raises(TypeError, match="echo"):
        client.echo(1, 2, 3)


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


@pytest.mark.parametrize("inside", [False, True], ids=["over a connection", "in its process"])
def test_a_deadline_passes(server: ActorServer, client: ActorClient, bench: Any, inside: bool) -> None:
    caller = server.own_client("bench") if inside else client
    running, queued = caller.call("wait", timeout=0.1), caller.call("note", ("late",), timeout=0.1)
    for call in (running, queued):
        with pytest.raises(DeadlineExceeded, match=r"of actor 'bench'.*: no result before its deadline"):
            call.result(WAIT_S)
    patient = caller.call("note", ("after",), timeout=WAIT_S)
    with pytest.raises(DeadlineExceeded, match=r"'note' of actor 'bench'.*: no result after 0.05 s"):
        patient.result(0.05)
    bench.gate.set()
    assert patient.result(WAIT_S) == 2
    assert bench.seen == ["waited", "after"]


def test_a_cancelled_call_does_not_run(client: ActorClient, bench: Any) -> None:
    running = client.wait.remote()
    eventually(lambda: bench.inside, "it is inside")
    for call in (client.note.remote("never"), client.size.remote(b"x" * 1_000_000)):
        assert call.cancel()
        with pytest.raises(Conflict, match="was cancelled"):
            call.result(WAIT_S)
    assert running.cancel()
    with pytest.raises(InvalidRequest):
        client.nothing()  # refused at once, when what was said before it has arrived
    last = client.note.remote("last")
    bench.gate.set()
    assert last.result(WAIT_S) == 2
    assert bench.seen == ["waited", "last"]
    assert not last.cancel()


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


def test_a_closed_client_refuses(client: ActorClient, bench: Any) -> None:
    running = client.wait.remote()
    eventually(lambda: bench.inside, "it is inside")
    client.close()
    with pytest.raises(Conflict, match="the client was closed"):
        running.result(WAIT_S)
    with pytest.raises(Conflict, match="was closed"):
        client.echo()


def test_memory_for_large_arguments_is_bounded(bench: Any, connect: Callable[..., ActorClient]) -> None:
    limit = 10_000_000  # three of the pickles, not four
    with ActorServer(key=KEY, memory_bytes=limit) as server:
        server.register("bench", bench)
        clients = [connect(server.address) for _ in range(4)]
        blocked = clients[0].wait.remote()
        calls = [one.size.remote(bytes(3_000_000)) for one in clients for _ in range(3)]
        eventually(lambda: bench.inside, "it is inside")
        eventually(lambda: 9_000_000 < server.load.waiting_bytes <= limit, "as much is here as may be")
        bench.gate.set()
        assert [call.result(WAIT_S) for call in calls] == [3_000_000] * 12
        assert blocked.result(WAIT_S)
        eventually(lambda: server.load.waiting_bytes == 0, "nothing is held")
