"""Connections that are cut, servers that die: no call runs twice, none hangs, no result is lost."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fray.testing.waiting import eventually
from iris.actor import ActorClient, ActorDied
from support.iris.proxy import TcpProxy, tcp_proxy

WAIT_S = 30.0


def test_a_running_call_outlives_its_connection(through: ActorClient, proxy: TcpProxy, bench: Any) -> None:
    call = through.wait.remote()
    eventually(lambda: bench.inside, "it is inside")
    before = proxy.accepted
    proxy.cut()
    eventually(lambda: proxy.accepted > before, "the client is back")
    proxy.refuse(True)
    proxy.cut()
    bench.gate.set()
    eventually(lambda: bench.seen, "it has ended")
    assert not call.done()
    proxy.refuse(False)
    assert call.result(WAIT_S) == 1, "its result was kept while the client was away"
    assert bench.seen == ["waited"]


def test_cut_again_and_again_every_call_runs_once(through: ActorClient, proxy: TcpProxy, bench: Any) -> None:
    calls = []
    for number in range(300):
        if number % 100 == 50:
            proxy.cut()
        calls.append(through.note.remote(number))
        if number % 60 == 0:
            calls[-1].result(WAIT_S)
    assert sorted(call.result(WAIT_S) for call in calls) == list(range(1, 301))
    assert sorted(bench.seen) == list(range(300))


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


@pytest.mark.process
def test_an_argument_that_was_cut_off_keeps_its_place(through: ActorClient, proxy: TcpProxy, bench: Any) -> None:
    through.echo()
    proxy.cut_after(8_000_000)
    before = proxy.accepted
    calls = [through.size.remote(bytes(20_000_000)), through.note.remote(1), through.note.remote(2)]
    for call in calls:
        call.result(WAIT_S)
    assert proxy.accepted > before
    assert bench.seen == [20_000_000, 1, 2]


@pytest.mark.process
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


def start(log: Path, port: int = 0) -> "tuple[subprocess.Popen[str], str]":
    """A process with an actor, and its address."""
    command = [sys.executable, "-c", SERVER, str(log), str(port)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def kill(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


@pytest.mark.process
def test_a_server_that_was_killed_is_told_apart_from_a_lost_connection(
    tmp_path: Path, connect: Callable[..., ActorClient]
) -> None:
    log = tmp_path / "log"
    first, address = start(log)
    with tcp_proxy(address) as proxy:
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
        kill(first)
        proxy.release()
        unsent = connect(address, "mortal").note.remote("unsent")
        second, _ = start(log, int(address.rpartition(":")[2]))
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
            kill(second)


@pytest.mark.process
def test_calls_of_a_process_that_ends_reach_their_actor_by_a_slow_road_too(proxy: TcpProxy, bench: Any) -> None:
    proxy.bytes_a_second = 3e6
    script = (
        "from iris.actor import ActorClient\n"
        f"client = ActorClient.at({proxy.address!r}, 'bench', key=b'k' * 32)\n"
        "for number in range(100): client.note.remote(number)\n"
        "for size in [60_000] * 10 + [1_500_000, 3_000_000]: client.size.remote(bytes(size))\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=WAIT_S)
    eventually(lambda: len(bench.seen) >= 112, "all have arrived", instead=lambda: bench.seen)
    assert bench.seen == [*range(100), *[60_000] * 10, 1_500_000, 3_000_000], "each once and whole"
