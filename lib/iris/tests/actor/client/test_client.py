"""What clients owe their users when calls, callbacks and ends are not as expected."""

import asyncio
import gc
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fray.testing.waiting import eventually
from iris.actor import ActorClient, ActorServer
from iris.actor.client.caller import Caller, ClientLimits
from iris.actor.client.pending import PendingCall
from iris.actor.client.places import FixedPlace, Place
from iris.actor.transport.loop import actor_loop, run
from rigging.errors import Conflict, InvalidRequest, NotFound

WAIT_S = 20.0
KEY = b"k" * 32


@pytest.mark.parametrize("timeout", [float("inf"), 1e18])
def test_a_time_limit_beyond_all_time_is_none(client: ActorClient, timeout: float) -> None:
    assert client.echo(1) == 1
    assert client.call("echo", (2,), timeout=timeout).result(WAIT_S) == 2
    assert client.echo.remote(3).result(timeout) == 3


def test_what_cannot_be_sent_is_refused_before_it_harms_other_calls(client: ActorClient, server: ActorServer) -> None:
    running = client.wait.remote()
    with pytest.raises(InvalidRequest, match="timeout of a call of 'echo' must be a number of seconds, not nan"):
        client.call("echo", (1,), timeout=float("nan"))
    with pytest.raises(InvalidRequest, match=r"invalid method name"):
        client.method("caf\udce9").remote()
    with pytest.raises(InvalidRequest, match=r"the key of actor 'bench' at .* must be bytes, not str"):
        ActorClient.at(server.address, "bench", key="k" * 32)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="the key of an ActorServer must be bytes, not str"):
        ActorServer(key="k" * 32).start()  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="no public method"):
        client.method("café").remote().result(WAIT_S)
    assert not running.done()


# ---- callbacks ----


def test_a_callback_that_raises_whatever_hurts_nobody(client: ActorClient) -> None:
    called, again = threading.Event(), threading.Event()

    def fail(call: Any) -> None:
        called.set()
        call.result()

    call = client.leave.remote()
    call.add_done_callback(fail)
    assert called.wait(WAIT_S)
    with pytest.raises(SystemExit):
        call.result(WAIT_S)
    client.echo.remote(1).add_done_callback(lambda _: again.set())
    assert again.wait(WAIT_S)


def test_a_callback_may_use_other_clients_and_wait_for_room(
    server: ActorServer, bench: Any, connect: Callable[..., ActorClient]
) -> None:
    client, other = connect(server.address, limits=ClientLimits(max_in_flight=1)), connect(server.address)

    def call_more(_: Any) -> None:
        other.note("first call of a client")
        other.close()
        for number in range(3):
            client.note.remote(number)

    client.echo.remote(1).add_done_callback(call_more)
    eventually(lambda: len(bench.seen) == 4, "all calls of the callback ran", instead=lambda: bench.seen)
    assert bench.seen == ["first call of a client", 0, 1, 2], "in their order"


def test_nobody_waits_for_the_loop_in_the_loop(
    server: ActorServer, bench: Any, connect: Callable[..., ActorClient]
) -> None:
    full = connect(server.address, limits=ClientLimits(max_in_flight=1))
    under_way = full.wait.remote()
    asked: list[str] = []

    def key() -> bytes:
        asked.append("the controller")
        return KEY

    unused = ActorClient.at("127.0.0.1:1", "x", key=KEY)
    at_once = ActorClient.to(FixedPlace("x", Place("127.0.0.1:1", "", "x")), key)

    async def inside() -> list[str]:
        said = []
        for wait in (lambda: run(asyncio.sleep(0)), full.echo.remote, unused.close, at_once.echo.remote):
            with pytest.raises(Conflict, match="do it in a thread of your own") as refused:
                wait()
            said.append(str(refused.value))
        return said

    said = asyncio.run_coroutine_threadsafe(inside(), actor_loop()).result(WAIT_S)
    assert "this call waits until another one ends" in said[1]
    assert said[3].startswith("the first call of an ActorClient waits for its connection")
    assert asked == [], "nor for what is needed before there is one"
    bench.gate.set()
    under_way.result(WAIT_S)


# ---- what is kept ----


def test_cancelled_calls_are_not_kept_until_their_deadline(client: ActorClient, bench: Any) -> None:
    def pending() -> int:
        gc.collect()
        return sum(type(thing) is PendingCall for thing in gc.get_objects())

    running = client.wait.remote()
    eventually(lambda: bench.inside, "it runs")
    before = pending()
    for _ in range(200):
        client.echo.remote(1).cancel()
    waiting = [client.call("size", (bytes(1000),), timeout=3600) for _ in range(5)]
    eventually(lambda: all(call._call.sent for call in waiting), "all were sent")
    while waiting:
        waiting.pop().cancel()
    eventually(lambda: pending() <= before, "all are gone", instead=pending)
    assert not running.done()


def test_a_client_that_nobody_has_any_more_goes(server: ActorServer) -> None:
    server.register("dropped", [])
    client = ActorClient.at(server.address, "dropped", key=KEY, limits=ClientLimits(idle_s=0.05))
    assert client.copy() == []

    def kept() -> int:
        gc.collect()
        return sum(type(thing) is Caller and "'dropped'" in thing.label for thing in gc.get_objects())

    assert kept() == 1
    del client
    eventually(lambda: not kept(), "its caller is gone")
    eventually(lambda: not server.load.sessions, "so is its session")


def test_a_fork_is_told_that_the_result_does_not_come(client: ActorClient, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, pending = client.echo.remote(5), client.wait.remote()
    ended.result(WAIT_S)
    monkeypatch.setattr("iris.actor.client.call.in_fork", lambda: True)
    assert ended.result() == 5
    for ask in (pending.result, lambda: pending.add_done_callback(print)):
        with pytest.raises(Conflict, match=r"'wait' of actor 'bench' at .* not to this fork"):
            ask()


def test_a_closed_client_leaves_nothing_on_the_server(server: ActorServer, bench: Any) -> None:
    for _ in range(3):
        with ActorClient.at(server.address, "bench", key=KEY) as client:
            assert client.echo(1) == 1
            client.note.remote("made just before the end")
    eventually(lambda: bench.seen == ["made just before the end"] * 3, "all ran", instead=lambda: bench.seen)
    eventually(lambda: not server.load.sessions, "their sessions are gone")
    with ActorClient.at(server.address, "bench", key=KEY) as client:
        client.wait.remote()
        eventually(lambda: bench.inside, "it runs")
    eventually(lambda: not server.load.sessions, "so is one with a call under way")


def test_of_the_loops_own_messages_only_faults_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """gRPC wakes every loop of a process, and all but one find nothing to read: at each message."""
    loop = actor_loop()
    for text, error in (("nothing to read", BlockingIOError()), ("a fault", ValueError("x"))):
        loop.call_soon_threadsafe(loop.call_exception_handler, {"message": text, "exception": error})
    eventually(lambda: "a fault" in caplog.text, "it is logged")
    assert "nothing to read" not in caplog.text


def test_inside_a_job_a_leaf_means_the_latest_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    answers = [SimpleNamespace(name="/ann/a/counter"), SimpleNamespace(name="/ann/a/b/counter")]

    def resolve(name: str) -> list[Any]:
        asked.append(name)
        return answers

    def place(connection: str, name: str, task_id: str) -> None:
        asked.append((connection, name))
        raise Conflict("no further")

    def key(_: Any, user: str) -> bytes:
        asked.append(user)
        return KEY

    cluster = SimpleNamespace(connection="connection", resolver=SimpleNamespace(resolve=resolve))
    monkeypatch.setattr("iris.actor.client.client.get_iris_ctx", lambda: SimpleNamespace(client=cluster))
    monkeypatch.setattr("iris.actor.client.client.NamedPlace", place)
    monkeypatch.setattr("iris.actor.client.client.actor_key", key)
    for name in ("counter", "/bob/x/counter"):
        with pytest.raises(Conflict, match="no further"):
            ActorClient(name).echo.remote()
    at_ann, at_bob = ("connection", "/ann/a/b/counter"), ("connection", "/bob/x/counter")
    assert asked == ["counter", "ann", at_ann, "bob", at_bob]
    answers.clear()
    with pytest.raises(NotFound, match="no endpoint 'counter' in this job or in those above it"):
        ActorClient("counter")
