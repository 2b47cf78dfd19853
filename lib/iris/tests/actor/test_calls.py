"""Calls of one actor over a connection that holds."""

import logging
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from iris.actor import ActorClient, ActorServer, ActorStopped, RemoteError, RemoteTraceback
from rigging.errors import AlreadyExists, Conflict, DeadlineExceeded, Denied, InvalidRequest, NotFound
from rigging.testing import eventually

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


def test_threads_share_a_result(client: ActorClient) -> None:
    for _ in range(20):
        call, found = client.echo.remote(list(range(1000))), []
        threads = [threading.Thread(target=lambda: found.append(call.result(WAIT_S))) for _ in range(4)]  # noqa: B023
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        assert found == [list(range(1000))] * 4


def test_calls_of_one_thread_run_in_the_order_they_were_made(client: ActorClient, bench: Any) -> None:
    calls = [client.note.remote(number) for number in range(1000)]
    assert [call.result(WAIT_S) for call in calls] == list(range(1, 1001))
    assert bench.seen == list(range(1000))


def test_a_large_argument_does_not_lose_its_place(client: ActorClient, bench: Any) -> None:
    large = client.size.remote(b"x" * 5_000_000)
    small = client.note.remote("small")
    small.result(WAIT_S)
    assert large.result(WAIT_S) == 5_000_000
    assert bench.seen == [5_000_000, "small"]


def test_one_call_at_a_time_unless_more_are_allowed(
    server: ActorServer, client: ActorClient, bench: Any, connect: Callable[..., ActorClient]
) -> None:
    alone = [client.wait.remote() for _ in range(3)]
    eventually(lambda: bench.inside, "the first is inside")
    bench.gate.set()
    for call in alone:
        call.result(WAIT_S)
    assert bench.most == 1
    together = type(bench)()
    server.register("together", together, max_concurrency=3)
    others = [connect(server.address, "together").wait.remote() for _ in range(5)]
    eventually(lambda: together.inside == 3, "three are inside")
    together.gate.set()
    for call in others:
        call.result(WAIT_S)
    assert together.most == 3


def test_a_thousand_calls_at_once(
    client: ActorClient, connect: Callable[..., ActorClient], server: ActorServer
) -> None:
    clients = [client, *(connect(server.address) for _ in range(9))]
    results: list[list[int]] = [[] for _ in clients]

    def work(which: int) -> None:
        calls = [clients[which].echo.remote(number) for number in range(100)]
        results[which] = [call.result(WAIT_S) for call in calls]

    threads = [threading.Thread(target=work, args=(which,)) for which in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert results == [list(range(100))] * 10


def test_an_exception_is_itself_with_the_actors_traceback(client: ActorClient) -> None:
    with pytest.raises(LookupError, match="no shards in the bucket") as caught:
        client.fail("the bucket")
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert "look_up_the_shards" in "".join(traceback.format_exception(caught.value))
    call = client.fail.remote("another")
    for _ in range(2):
        with pytest.raises(LookupError, match="another"):
            call.result(WAIT_S)


def test_exceptions_that_cannot_travel_are_told_as_text(client: ActorClient) -> None:
    with pytest.raises(RemoteError, match="Unpicklable: the device is on fire") as caught:
        client.fail_strangely()
    assert "fail_strangely" in str(caught.value.__cause__)
    with pytest.raises(RemoteError, match=r"cannot be made again \(it cannot be made again here: TypeError"):
        client.fail_there()
    with pytest.raises(SystemExit):
        client.leave()
    with pytest.raises(RemoteError, match=r"the result of 'give_lock' cannot be pickled.*_thread.lock"):
        client.give_lock()
    with pytest.raises(TypeError, match="echo"):
        client.echo(1, 2, 3)
    assert client.echo(5) == 5


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


def test_a_deadline_passes(client: ActorClient, bench: Any) -> None:
    running = client.call("wait", timeout=0.2)
    queued = client.call("note", ("late",), timeout=0.2)
    for call in (running, queued):
        with pytest.raises(DeadlineExceeded, match="no result before its deadline"):
            call.result(WAIT_S)
    patient = client.note.remote("after")
    with pytest.raises(DeadlineExceeded, match=r"'note' of actor 'bench' at .*: no result after 0.05 s"):
        patient.result(0.05)
    bench.gate.set()
    assert patient.result(WAIT_S) == 2
    assert bench.seen == ["waited", "after"]


def test_a_cancelled_call_does_not_run(client: ActorClient, bench: Any) -> None:
    running = client.wait.remote()
    eventually(lambda: bench.inside, "it is inside")
    queued = [client.note.remote("never"), client.size.remote(b"x" * 1_000_000)]
    for call in queued:
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


def test_callers_without_the_key_are_refused_and_learn_nothing(
    server: ActorServer, connect: Callable[..., ActorClient], bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(Denied, match="is not one of this user's jobs: nothing was sent to it"):
        connect(server.address, key=b"z" * 32).note("foreign")
    assert bench.seen == []
    assert KEY.hex() not in caplog.text
    assert str(KEY) not in caplog.text


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
