"""Connections that are cut: no call runs twice, none hangs, no result is lost."""

from typing import Any

import pytest

from fray.testing.waiting import eventually
from iris.actor import ActorClient
from support.iris.proxy import TcpProxy

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
