"""What clients owe their users when calls, callbacks and ends are not as expected."""

import asyncio
import gc
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from iris.actor import ActorClient, ActorServer
from iris.actor.client.caller import Caller, ClientLimits
from iris.actor.client.pending import PendingCall
from iris.actor.client.places import FixedPlace, Place
from iris.actor.transport.loop import actor_loop, run
from rigging.errors import Conflict, Denied, InvalidRequest, MarinError, NotFound
from rigging.testing import eventually

WAIT_S = 20.0
KEY = b"k" * 32
PLACE = Place("127.0.0.1:1", "", "x")


@pytest.mark.parametrize("timeout", [float("inf"), 1e18, 1e300])
def test_a_time_limit_beyond_all_time_is_none(client: ActorClient, timeout: float) -> None:
    assert client.echo(1) == 1
    assert client.call("echo", (2,), timeout=timeout).result(WAIT_S) == 2
    assert client.echo.remote(3).result(WAIT_S) == 3


def test_what_cannot_be_sent_is_refused_before_it_harms_other_calls(client: ActorClient, server: ActorServer) -> None:
    running = client.wait.remote()
    with pytest.raises(InvalidRequest, match="timeout of a call of 'echo' must be a number of seconds, not nan"):
        client.call("echo", (1,), timeout=float("nan"))
    with pytest.raises(InvalidRequest, match=r"no method can have that name"):
        client.method("caf\udce9").remote()
    with pytest.raises(InvalidRequest, match=r"the key of actor 'bench' at .* must be bytes, not str"):
        ActorClient.at(server.address, "bench", key="k" * 32)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="the key of an ActorServer must be bytes, not str"):
        ActorServer(key="k" * 32).start()  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="no public method"):
        client.method("café").remote().result(WAIT_S)
    assert not running.done()


def test_a_fault_of_the_client_fails_its_calls_and_the_next_one_begins_anew(
    client: ActorClient, bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.echo(1) == 1
    fill = PendingCall.fill

    def fail(call: PendingCall, envelope: Any) -> int:
        if call.method == "size":
            raise ValueError("no room for this one")
        return fill(call, envelope)

    monkeypatch.setattr(PendingCall, "fill", fail)
    behind = client.wait.remote()
    broken = client.size.remote(b"")
    for call in (broken, behind):
        with pytest.raises(MarinError, match=r"its client failed; .* ValueError: no room for this one"):
            call.result(WAIT_S)
    bench.gate.set()
    assert client.echo.remote(2).result(WAIT_S) == 2


# ---- callbacks ----


def test_a_callback_that_raises_whatever_hurts_nobody(client: ActorClient) -> None:
    called = threading.Event()

    def fail(call: Any) -> None:
        called.set()
        call.result()

    call = client.leave.remote()
    call.add_done_callback(fail)
    assert called.wait(WAIT_S)
    with pytest.raises(SystemExit):
        call.result(WAIT_S)
    again = threading.Event()
    client.echo.remote(1).add_done_callback(lambda _: again.set())
    assert again.wait(WAIT_S)
    assert client.echo.remote(2).result(WAIT_S) == 2


def test_a_callback_may_use_other_clients(
    client: ActorClient, server: ActorServer, connect: Callable[..., ActorClient]
) -> None:
    other = connect(server.address)
    seen: list[Any] = []

    def ask_another(_: Any) -> None:
        seen.append(other.echo.remote("first call of a client").result(WAIT_S))
        other.close()
        seen.append("closed")

    client.echo.remote(1).add_done_callback(ask_another)
    eventually(lambda: seen == ["first call of a client", "closed"], "the callback is through", instead=lambda: seen)
    assert client.echo.remote(2).result(WAIT_S) == 2


def test_a_callback_may_wait_for_room(server: ActorServer, bench: Any, connect: Callable[..., ActorClient]) -> None:
    client = connect(server.address, limits=ClientLimits(max_in_flight=1))

    def call_more(_: Any) -> None:
        for number in range(3):
            client.note.remote(number)

    client.echo.remote(1).add_done_callback(call_more)
    eventually(lambda: len(bench.seen) == 3, "all calls of the callback ran", instead=lambda: bench.seen)
    assert bench.seen == [0, 1, 2], "in their order"


def test_nobody_waits_for_the_loop_in_the_loop(
    server: ActorServer, bench: Any, connect: Callable[..., ActorClient]
) -> None:
    full = connect(server.address, limits=ClientLimits(max_in_flight=1))
    under_way = full.wait.remote()
    asked: list[str] = []

    def key() -> bytes:
        asked.append("the controller")
        return KEY

    unused, at_once = ActorClient.at("127.0.0.1:1", "x", key=KEY), ActorClient.to(FixedPlace("x", PLACE), key)

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


def _pending() -> int:
    gc.collect()
    return sum(type(thing) is PendingCall for thing in gc.get_objects())


def test_calls_cancelled_at_once_are_not_kept(client: ActorClient, bench: Any) -> None:
    running = client.wait.remote()
    eventually(lambda: bench.inside, "it runs")
    before = _pending()
    for _ in range(2000):
        client.echo.remote(1).cancel()
    eventually(lambda: _pending() <= before, "all are gone", instead=_pending)
    assert not running.done()


def test_a_cancelled_call_with_a_deadline_is_not_kept_until_then(client: ActorClient, bench: Any) -> None:
    running = client.wait.remote()
    eventually(lambda: bench.inside, "it runs")
    before = _pending()
    waiting = [client.call("size", (bytes(1000),), timeout=3600) for _ in range(5)]
    eventually(lambda: all(call._call.sent for call in waiting), "all were sent")
    while waiting:
        waiting.pop().cancel()
    eventually(lambda: _pending() <= before, "all are gone", instead=_pending)
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


def test_an_exception_does_not_grow_by_those_who_ask(
    client: ActorClient, server: ActorServer, connect: Callable[..., ActorClient]
) -> None:
    failed = client.fail.remote("here")
    lengths = set()
    for _ in range(20):
        with pytest.raises(LookupError) as raised:
            failed.result(WAIT_S)
        lengths.add(len(traceback.extract_tb(raised.value.__traceback__)))
    assert len(lengths) == 1
    strange = connect(server.address, key=b"y" * 32)
    errors = []
    for call in [strange.echo.remote(number) for number in range(20)]:
        with pytest.raises(Denied) as denied:
            call.result(WAIT_S)
        errors.append(denied.value)
    assert len({id(error) for error in errors}) == 20


def test_a_fork_is_told_that_the_result_does_not_come(server: ActorServer, bench: Any) -> None:
    script = (
        "import os\n"
        "from iris.actor import ActorClient\n"
        f"client = ActorClient.at({server.address!r}, 'bench', key=b'k' * 32)\n"
        "ended, pending = client.echo.remote(5), client.wait.remote()\n"
        "ended.result()\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        "    code = 1\n"
        "    try:\n"
        "        assert ended.result() == 5\n"
        "        pending.result()\n"
        "    except RuntimeError as error:\n"
        "        code = 0 if 'this is a fork of it' in str(error) else 2\n"
        "    finally:\n"
        "        os._exit(code)\n"
        "code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n"
        "os._exit(code)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=WAIT_S).returncode == 0


# ---- ends ----


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


def test_an_idle_client_leaves_nothing_on_the_server(server: ActorServer, connect: Callable[..., ActorClient]) -> None:
    client = connect(server.address, limits=ClientLimits(idle_s=0.05))
    for number in range(2):
        assert client.echo.remote(number).result(WAIT_S) == number
        eventually(lambda: not server.load.sessions, "its session is gone")


class SlowRoad:
    """Stands between a client and a server, and lets so many bytes a second through to the server."""

    def __init__(self, target: str, rate: float) -> None:
        self._target = target
        self._rate = rate
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            host, _, port = self._target.rpartition(":")
            far = socket.create_connection((host, int(port)))
            threading.Thread(target=self._pump, args=(near, far, self._rate), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near, 0.0), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, rate: float) -> None:
        try:
            while data := source.recv(1 << 14):
                sink.sendall(data)
                if rate:
                    time.sleep(len(data) / rate)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # one side is gone


@pytest.fixture
def slow_road(server: ActorServer) -> Iterator[SlowRoad]:
    road = SlowRoad(server.address, 3e6)
    yield road
    road.close()


@pytest.mark.parametrize(("size", "count"), [(1_500_000, 1), (60_000, 30), (3_000_000, 1)])
def test_calls_of_a_process_that_ends_arrive_by_a_slow_road_too(
    server: ActorServer, bench: Any, slow_road: SlowRoad, size: int, count: int
) -> None:
    script = (
        "from iris.actor import ActorClient\n"
        f"client = ActorClient.at({slow_road.address!r}, 'bench', key=b'k' * 32)\n"
        "client.echo(1)\n"
        f"for _ in range({count}): client.size.remote(bytes({size}))\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=WAIT_S)
    eventually(lambda: len(bench.seen) >= count, "all ran", instead=lambda: bench.seen)
    assert bench.seen == [size] * count, "each once and whole"


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
    assert asked == [
        "counter", "ann", ("connection", "/ann/a/b/counter"),
        "bob", ("connection", "/bob/x/counter"),
    ]  # fmt: skip
    answers.clear()
    with pytest.raises(NotFound, match="no endpoint 'counter' in this job or in those above it"):
        ActorClient("counter")
