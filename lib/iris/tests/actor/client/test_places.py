"""Where an actor is: what is said of the endpoints that answer, and when those who follow are told."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast
from unittest.mock import Mock

import grpc
import grpc.aio
import pytest

from fray.testing.waiting import eventually_async
from iris.actor.client import places
from iris.actor.client.places import ACTOR_KEY, EndpointWatch, Location, NamedPlace, Place
from iris.client.connection.connection import Connection
from iris.client.endpoints import Endpoint, EndpointSet
from iris.rpc.controller_address import ControllerAddress
from iris.rpc.generated import endpoints_pb2 as pb
from rigging.errors import Denied, MarinError, NotFound, Unavailable


def endpoint(number: int, **metadata: str) -> Endpoint:
    return Endpoint(name="/u/job/counter", address=f"h:{number}", attempt_id=f"/u/job/{number}:0", metadata=metadata)


def place(number: int) -> Place:
    return Place(f"h:{number}", f"/u/job/{number}:0", "counter")


def answers(*numbers: int, ended: bool = False, reason: str = "") -> EndpointSet:
    return EndpointSet(endpoints=tuple(map(endpoint, numbers)), ended=ended, ended_reason=reason)


def test_the_actors_name_at_its_server_is_in_the_metadata_or_else_the_leaf() -> None:
    assert places.place_of(endpoint(1)) == place(1)
    assert places.place_of(endpoint(1, **{ACTOR_KEY: "own"})) == Place("h:1", "/u/job/1:0", "own")


Named = tuple[NamedPlace, Mock, list[Location]]


@pytest.fixture
def named() -> Named:
    """A place, the maker of its watch, which the test plays, and what was told."""
    make_watch, told = Mock(), []
    where = NamedPlace(cast(Connection, "connection"), "/u/job/counter", make_watch=make_watch)
    where.open(lambda: told.append(where.now))
    _, make_watch.request, make_watch.found, make_watch.failed = make_watch.call_args.args
    return where, make_watch, told


def test_a_name_is_looked_for_from_its_opening_to_its_closing(named: Named) -> None:
    where, watch, told = named
    assert (where.label, watch.request.name) == ("/u/job/counter", "/u/job/counter")
    assert (where.now, told) == (Location(), [])
    watch.found(answers(1))
    where.close()
    assert where.now == Location()
    assert [name for name, *_ in watch.return_value.method_calls] == ["start", "stop"]


def test_of_several_the_latest_is_taken_and_kept_while_it_is_there(named: Named) -> None:
    where, watch, told = named
    for found in ((1, 2), (1, 2, 3), (1, 3), ()):
        watch.found(answers(*found))
    assert where.now == Location()
    assert [now.place for now in told] == [place(2), place(3), None], "told of each change and of nothing else"


def test_why_it_will_have_no_place_any_more_is_told(named: Named) -> None:
    where, watch, _ = named
    watch.found(answers(1, reason="not yet"))
    assert where.now == Location(place(1))
    watch.found(answers(ended=True, reason="job /u/job failed"))
    assert where.now == Location(None, "job /u/job failed")
    error = NotFound("no such job")
    watch.failed(error)
    assert where.now == Location(error=error)


# ---- following endpoints through restarts of the controller, which is played ----


def broken(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "what the controller said")


def added(*numbers: int, removed: tuple[int, ...] = ()) -> pb.EndpointsUpdate:
    def endpoint(number: int) -> pb.Endpoint:
        return pb.Endpoint(name="/ann/a/x", attempt_id=f"/ann/a/{number}:0", address=f"h:{number}")

    return pb.EndpointsUpdate(added=map(endpoint, numbers), removed=map(endpoint, removed))


class Controller:
    """Plays the connection to a controller; `Channel` plays the channels and the stub."""

    def __init__(self) -> None:
        self.streams: list[list[pb.EndpointsUpdate | Exception]] = []
        """What each stream says; it goes on for ever behind that, unless it ends with an error."""
        self.away: list[MarinError] = []
        self.lost: list[MarinError] = []
        self.opened: list[tuple[str, Any, Any]] = []
        self.reconnects = self.answers = self.open_channels = 0

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


class Channel:
    def __init__(self, controller: Controller, address: str) -> None:
        self._controller = controller
        self._address = address

    async def __aenter__(self) -> "Channel":
        self._controller.open_channels += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._controller.open_channels -= 1

    async def Watch(self, request: Any, metadata: Any) -> AsyncIterator[pb.EndpointsUpdate]:
        self._controller.opened.append((self._address, request, dict(metadata)["authorization"]))
        for update in self._controller.streams.pop(0):
            if isinstance(update, Exception):
                raise update
            yield update
        await asyncio.Event().wait()


class Bench:
    """A watch, and what it told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.controller = Controller()
        self.heard: list[list[str]] = []
        self.errors: list[MarinError] = []
        monkeypatch.setattr(places.grpc.aio, "insecure_channel", lambda to, options: Channel(self.controller, to))
        monkeypatch.setattr(places, "EndpointServiceStub", lambda channel: channel)
        self.request = pb.WatchEndpointsRequest(name="/ann/a/x")
        self.watch = EndpointWatch(cast(Connection, self.controller), self.request, self._found, self.errors.append)

    def _found(self, found: EndpointSet) -> None:
        self.heard.append([endpoint.address for endpoint in found.endpoints])

    async def hears(self, count: int = 0, errors: int = 0) -> None:
        what = f"{count} changes and {errors} errors"
        await eventually_async(lambda: len(self.heard) >= count and len(self.errors) >= errors, what)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


async def test_every_change_is_told_and_what_is_known_is_not(bench: Bench) -> None:
    bench.controller.streams = [[added(), added(1), added(1), added(2, removed=(1,))]]
    bench.watch.start()
    bench.watch.start()
    await bench.hears(3)
    assert bench.heard == [[], ["h:1"], ["h:2"]]
    assert bench.controller.opened == [("c:0", bench.request, "Bearer a token")]
    assert bench.controller.answers == 4


async def test_a_restart_of_the_controller_is_told_by_what_is_different_behind_it(bench: Bench) -> None:
    bench.controller.streams = [
        [added(1, 2), broken(grpc.StatusCode.UNAVAILABLE)],
        [added(1, 2), Unavailable("the connection broke")],
        [added(2)],
    ]
    bench.controller.away, bench.controller.lost = [Unavailable("not up yet")], [Unavailable("not up yet")]
    bench.watch.start()
    await bench.hears(2)
    assert bench.heard == [["h:1", "h:2"], ["h:2"]]
    assert [address for address, _, _ in bench.controller.opened] == ["c:1", "c:2", "c:3"]
    assert bench.controller.open_channels == 1
    assert bench.errors == []


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
async def test_a_refusal_is_told_once_and_ends_it(bench: Bench, streams: Any, away: Any, lost: Any, kind: Any) -> None:
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


async def test_after_a_stop_nothing_is_open(bench: Bench) -> None:
    bench.controller.streams = [[added(1)], [added(2)]]
    bench.watch.start()
    await bench.hears(1)
    bench.watch.stop()
    bench.watch.stop()
    await eventually_async(lambda: not bench.controller.open_channels, "nothing is open")
    bench.watch.start()
    await bench.hears(2)
    assert bench.heard == [["h:1"], ["h:2"]]
