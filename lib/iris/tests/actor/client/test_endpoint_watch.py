"""Following endpoints through restarts of the controller, which is played: what is told, and what ends it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from iris.actor.client import places
from iris.actor.client.places import EndpointWatch
from iris.client.connection.connection import Connection
from iris.client.endpoints import EndpointSet
from iris.rpc import endpoints_pb2 as pb
from iris.rpc.controller_address import ControllerAddress
from rigging.errors import Denied, MarinError, NotFound, Unavailable

Said = list[pb.EndpointsUpdate | Exception]


def broken(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "what the controller said")


def added(*numbers: int, removed: tuple[int, ...] = ()) -> pb.EndpointsUpdate:
    def endpoint(number: int) -> pb.Endpoint:
        return pb.Endpoint(name="/ann/a/x", attempt_id=f"/ann/a/{number}:0", address=f"h:{number}")

    return pb.EndpointsUpdate(added=map(endpoint, numbers), removed=map(endpoint, removed))


class Controller:
    """Plays the connection, the channel and the stub."""

    def __init__(self) -> None:
        self.streams: list[Said] = []
        """What each stream says; it goes on for ever behind that, unless it ends with an error."""
        self.away: list[MarinError] = []
        self.lost: list[MarinError] = []
        self.opened: list[tuple[str, Any, Any]] = []
        self.reconnects = 0
        self.answers = 0
        self.open_channels = 0

    def controller_address(self) -> ControllerAddress:
        if self.away:
            raise self.away.pop(0)
        return ControllerAddress(f"c:{self.reconnects}", "a token")

    def reconnect(self) -> None:
        self.reconnects += 1
        if self.lost:
            raise self.lost.pop(0)

    def note_answer(self) -> None:
        self.answers += 1

    def insecure_channel(self, address: str, options: Any) -> "Channel":
        return Channel(self, address)


class Channel:
    def __init__(self, controller: Controller, address: str) -> None:
        self._controller = controller
        self._address = address

    async def __aenter__(self) -> "Channel":
        self._controller.open_channels += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._controller.open_channels -= 1

    def Watch(self, request: Any, metadata: Any) -> AsyncIterator[pb.EndpointsUpdate]:
        self._controller.opened.append((self._address, request, dict(metadata)["authorization"]))
        return self._say(self._controller.streams.pop(0))

    async def _say(self, said: Said) -> AsyncIterator[pb.EndpointsUpdate]:
        for update in said:
            if isinstance(update, Exception):
                raise update
            yield update
        await asyncio.Event().wait()


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.controller = Controller()
        self.heard: list[list[str]] = []
        self.errors: list[MarinError] = []
        self.changed = asyncio.Event()
        monkeypatch.setattr(places.grpc.aio, "insecure_channel", self.controller.insecure_channel)
        monkeypatch.setattr(places, "EndpointServiceStub", lambda channel: channel)
        self.request = pb.WatchEndpointsRequest(name="/ann/a/x")
        connection = cast(Connection, self.controller)
        self.watch = EndpointWatch(connection, self.request, self._found, self._failed)

    def _found(self, found: EndpointSet) -> None:
        self.heard.append([endpoint.address for endpoint in found.endpoints])
        self.changed.set()

    def _failed(self, error: MarinError) -> None:
        self.errors.append(error)
        self.changed.set()

    async def hears(self, count: int = 0, errors: int = 0) -> None:
        while len(self.heard) < count or len(self.errors) < errors:
            self.changed.clear()
            await self.changed.wait()


Play = Callable[[Callable[[Bench], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    def run(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            bench = Bench(monkeypatch)
            await asyncio.wait_for(scenario(bench), 30)
            bench.watch.stop()

        asyncio.run(whole())

    return run


def test_every_change_is_told_and_what_is_known_is_not(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.controller.streams = [[added(), added(1), added(1), added(2, removed=(1,))]]
        bench.watch.start()
        bench.watch.start()
        await bench.hears(3)
        assert bench.heard == [[], ["h:1"], ["h:2"]]
        assert bench.controller.opened == [("c:0", bench.request, "Bearer a token")]
        assert bench.controller.answers == 4

    play(scenario)


def test_a_restart_of_the_controller_is_told_by_what_is_different_behind_it(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.controller.streams = [
            [added(1, 2), broken(grpc.StatusCode.UNAVAILABLE)],
            [added(1, 2), Unavailable("the connection broke")],
            [added(2)],
        ]
        bench.controller.away = [Unavailable("not up yet")]
        bench.controller.lost = [Unavailable("not up yet")]
        bench.watch.start()
        await bench.hears(2)
        assert bench.heard == [["h:1", "h:2"], ["h:2"]]
        assert [address for address, _, _ in bench.controller.opened] == ["c:1", "c:2", "c:3"]
        assert bench.controller.open_channels == 1
        assert bench.errors == []

    play(scenario)


@pytest.mark.parametrize(
    ("streams", "away", "lost", "kind"),
    [
        ([[broken(grpc.StatusCode.PERMISSION_DENIED)]], [], [], Denied),
        ([[NotFound("no such job")]], [], [], NotFound),
        ([], [Denied("no token")], [], Denied),
        ([[broken(grpc.StatusCode.UNAVAILABLE)]], [], [Denied("another cluster")], Denied),
    ],
    ids=["of the stream", "of the family", "at first", "at the next one"],
)
def test_a_refusal_is_told_once_and_ends_it(play: Play, streams: Any, away: Any, lost: Any, kind: Any) -> None:
    async def scenario(bench: Bench) -> None:
        bench.controller.streams, bench.controller.away, bench.controller.lost = list(streams), list(away), list(lost)
        bench.watch.start()
        await bench.hears(errors=1)
        assert [type(error) for error in bench.errors] == [kind]
        await asyncio.sleep(0)
        assert bench.controller.open_channels == 0
        bench.controller.streams = [[added(1)]]
        bench.watch.start()
        await bench.hears(1)
        assert bench.heard == [["h:1"]], "it can be begun anew"

    play(scenario)


def test_after_a_stop_nothing_is_open(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.controller.streams = [[added(1)], [added(2)]]
        bench.watch.start()
        await bench.hears(1)
        bench.watch.stop()
        bench.watch.stop()
        while bench.controller.open_channels:  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)
        bench.watch.start()
        await bench.hears(2)
        assert bench.heard == [["h:1"], ["h:2"]]

    play(scenario)
