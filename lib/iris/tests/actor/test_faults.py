"""Connections that are cut, servers that die: no call runs twice, none hangs, no result is lost."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iris.actor import ActorClient, ActorDied, ActorServer
from iris.actor.client import caller as caller_module
from iris.testing.proxy import TcpProxy, tcp_proxy
from rigging.testing import eventually

WAIT_S = 30.0
KEY = b"k" * 32


def test_a_running_call_outlives_its_connection(through: ActorClient, proxy: TcpProxy, bench: Any) -> None:
    call = through.wait.remote()
    eventually(lambda: bench.inside, "it is inside")
    for _ in range(3):
        before = proxy.accepted
        proxy.cut()
        eventually(lambda before=before: proxy.accepted > before, "the client is back")
    bench.gate.set()
    assert call.result(WAIT_S) == 1
    assert bench.seen == ["waited"]


def test_a_result_that_comes_while_the_client_is_away_is_kept(
    through: ActorClient, proxy: TcpProxy, bench: Any
) -> None:
    call = through.wait.remote()
    eventually(lambda: bench.inside, "it is inside")
    proxy.refuse(True)
    proxy.cut()
    bench.gate.set()
    eventually(lambda: bench.seen, "it has ended")
    assert not call.done()
    proxy.refuse(False)
    assert call.result(WAIT_S) == 1


def test_cut_again_and_again_every_call_runs_once(through: ActorClient, proxy: TcpProxy, bench: Any) -> None:
    calls = []
    for number in range(600):
        if number % 100 == 50:
            proxy.cut()
        calls.append(through.note.remote(number))
        if number % 60 == 0:
            calls[-1].result(WAIT_S)
    assert sorted(call.result(WAIT_S) for call in calls) == list(range(1, 601))
    assert sorted(bench.seen) == list(range(600))


@pytest.mark.parametrize("after", [1, 40_000, 700_000, 4_000_000])
def test_large_arguments_and_results_are_sent_again_when_cut(
    through: ActorClient, proxy: TcpProxy, bench: Any, after: int
) -> None:
    data = bytes(range(256)) * 20_000
    assert through.echo(1) == 1
    proxy.cut_after(after)
    there = through.size.remote(data)
    proxy_cut_on_the_way_back = through.echo.remote(data)
    assert there.result(WAIT_S) == len(data)
    proxy.cut_after(after)
    assert proxy_cut_on_the_way_back.result(WAIT_S) == data
    assert bench.seen == [len(data)]


def test_a_slow_network_holds_the_sender_back_not_the_memory(through: ActorClient, proxy: TcpProxy, bench: Any) -> None:
    assert through.echo(1) == 1
    proxy.hold()
    calls = [through.size.remote(bytes(10_000_000)) for _ in range(5)]
    last = through.echo.remote("behind them")
    eventually(lambda: b"behind them" in proxy.held(), "all has been offered", instead=lambda: len(proxy.held()))
    # Nothing was let through, so nothing was asked for, and no pickle was copied into the transport.
    assert len(proxy.held()) < 1_000_000
    proxy.release()
    assert last.result(WAIT_S) == "behind them"
    assert [call.result(WAIT_S) for call in calls] == [10_000_000] * 5


def test_a_hundred_megabytes(client: ActorClient) -> None:
    data = bytes(100 << 20)
    assert client.size(data) == len(data)
    assert len(client.make(100 << 20)) == 100 << 20


SERVER = """
import sys, os
from iris.actor import ActorServer
class Mortal:
    def __init__(self, log): self.log = log
    def note(self, text):
        with open(self.log, "a") as file: file.write(text + "\\n")
        return os.getpid()
    def hang(self, text):
        self.note(text)
        import threading; threading.Event().wait(60)
server = ActorServer(port=int(sys.argv[2]), key=b"k" * 32)
server.start()
server.register("mortal", Mortal(sys.argv[1]))
print(server.address, flush=True)
sys.stdin.read()
"""


class ServerProcess:
    """One process with an actor."""

    def __init__(self, log: Path, port: int = 0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(log), str(port)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


@pytest.mark.e2e
def test_a_server_that_was_killed_is_told_apart_from_a_lost_connection(
    tmp_path: Path, connect: Callable[..., ActorClient]
) -> None:
    log = tmp_path / "log"
    first = ServerProcess(log)
    with tcp_proxy(first.address) as proxy:
        client = connect(proxy.address, "mortal")
        again = connect(proxy.address, "mortal", max_retries=1)
        pid = client.note("one")
        assert again.note("two") == pid
        lost = client.hang.remote("lost")
        eventually(lambda: "lost" in lines(log), "the call runs")
        proxy.hold()
        # They have left the client, behind the call that hangs: whether the server has them is not known to it.
        repeated = again.note.remote("repeated")
        waiting = client.note.remote("waiting")
        eventually(lambda: b"repeated" in proxy.held() and b"waiting" in proxy.held(), "both were sent")
        first.kill()
        proxy.release()
        unsent = connect(first.address, "mortal").note.remote("unsent")
        second = ServerProcess(log, int(first.address.rpartition(":")[2]))
        try:
            with pytest.raises(
                ActorDied, match=r"'hang' of actor 'mortal' at .* whether the method ran is not known"
            ) as died:
                lost.result(WAIT_S)
            assert died.value.retryable
            with pytest.raises(ActorDied):
                waiting.result(WAIT_S)
            assert repeated.result(WAIT_S) == unsent.result(WAIT_S) != pid
            assert sorted(lines(log)) == ["lost", "one", "repeated", "two", "unsent"]
        finally:
            second.kill()


@pytest.mark.e2e
def test_a_server_that_never_comes_back_fails_the_calls(
    tmp_path: Path, connect: Callable[..., ActorClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iris.actor.client.client.RECONNECT_TIMEOUT_S", 0.3)
    assert caller_module.RECONNECT_TIMEOUT_S == 60
    only = ServerProcess(tmp_path / "log")
    client = connect(only.address, "mortal")
    client.note("one")
    call = client.hang.remote("lost")
    only.kill()
    with pytest.raises(ActorDied, match=r"did not answer for 0.3 s"):
        call.result(WAIT_S)


def test_calls_of_a_process_that_ends_reach_their_actor(server: ActorServer, bench: Any) -> None:
    script = (
        "from iris.actor import ActorClient\n"
        f"client = ActorClient.at({server.address!r}, 'bench', key=b'k' * 32)\n"
        "for number in range(100): client.note.remote(number)\n"
        "client.size.remote(bytes(3_000_000))\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=WAIT_S)
    eventually(lambda: len(bench.seen) == 101, "all have arrived", instead=lambda: bench.seen)
    assert bench.seen == [*range(100), 3_000_000]


def test_a_session_that_is_away_for_too_long_is_forgotten(connect: Callable[..., ActorClient], bench: Any) -> None:
    with ActorServer(key=KEY, session_timeout=0.2) as server, tcp_proxy(server.address) as proxy:
        server.register("bench", bench)
        client = connect(proxy.address)
        running, queued = client.wait.remote(), client.note.remote("never")
        eventually(lambda: bench.inside, "it is inside")
        proxy.refuse(True)
        proxy.cut()
        eventually(lambda: not server.load.sessions, "it is forgotten")
        bench.gate.set()
        proxy.refuse(False)
        for call in (running, queued):
            with pytest.raises(ActorDied, match="not known"):
                call.result(WAIT_S)
        assert client.echo(1) == 1
        assert bench.seen == ["waited"]
