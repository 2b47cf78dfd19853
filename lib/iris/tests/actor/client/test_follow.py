"""Waiting for an actor by its name, and groups of actors, while the controller's watch is played."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from iris.actor.client import follow, pool
from iris.actor.client.follow import EndpointFollower
from iris.actor.client.places import Location
from iris.actor.client.pool import ActorPool
from iris.client.endpoints import Endpoint, EndpointSet
from rigging.errors import Conflict, DeadlineExceeded, InvalidRequest, Unavailable

WAIT_S = 20.0


class Watch:
    """Says what the test wants; the last one made is `Watch.last`."""

    last: "Watch"

    def __init__(self, connection: Any, request: Any, on_change: Any, on_error: Any) -> None:
        assert connection == "connection"
        self.request = request
        self.say: Callable[[EndpointSet], object] = on_change
        self.fail: Callable[[Exception], object] = on_error
        self.states: list[str] = []
        Watch.last = self

    def start(self) -> None:
        self.states.append("started")

    def stop(self) -> None:
        self.states.append("stopped")


class Client:
    """Of one actor of a group."""

    made: ClassVar[list["Client"]] = []

    def __init__(self, member: Any, timeout: float | None) -> None:
        self.member = member
        self.timeout = timeout
        self.closed = False
        Client.made.append(self)

    @classmethod
    def to(cls, member: Any, key: Any, *, timeout: float | None, limits: Any) -> "Client":
        return cls(member, timeout)

    def call(self, *what: Any, timeout: float | None) -> Any:
        return self.member.label, *what, timeout

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "EndpointWatch", Watch)
    monkeypatch.setattr(pool, "ActorClient", Client)
    Client.made = []


CLUSTER: Any = SimpleNamespace(
    connection="connection", resolver=SimpleNamespace(watch_request=lambda name, prefix="": (name, prefix))
)


def found(*numbers: int, ended: str = "") -> EndpointSet:
    there = (Endpoint("/ann/a/w", f"/ann/a/{number}:0", f"h:{number}", {"actor": "w"}) for number in numbers)
    return EndpointSet(tuple(there), bool(ended), ended)


InThread = Callable[[Callable[[], Any]], Callable[[], Any]]


@pytest.fixture
def in_thread() -> Iterator[InThread]:
    """Does something meanwhile; what is returned waits for its result, or raises its error."""
    with ThreadPoolExecutor() as threads:
        yield lambda work: partial(threads.submit(work).result, WAIT_S)


class TestTheFollower:
    def test_one_who_waits_gets_the_first_that_is_as_waited_for(self, in_thread: InThread) -> None:
        changes: list[EndpointSet] = []
        with EndpointFollower(CLUSTER, "w", on_change=changes.append) as follower:
            assert (Watch.last.request, Watch.last.states) == (("w", ""), ["started"])
            first = in_thread(lambda: follower.latest)
            two = in_thread(lambda: follower.wait_for(lambda now: len(now.endpoints) == 2, WAIT_S))
            for numbers in ((), (1,), (1, 2)):
                Watch.last.say(found(*numbers))
            assert first() in changes
            assert two() == found(1, 2) == follower.latest
            assert changes == [found(), found(1), found(1, 2)]
        assert Watch.last.states == ["started", "stopped"]

    def test_who_waits_too_long_is_told(self) -> None:
        with EndpointFollower(CLUSTER, prefix="/ann/") as follower:
            assert Watch.last.request == ("", "/ann/")
            Watch.last.say(found(1))
            with pytest.raises(DeadlineExceeded, match=r"endpoints of /ann/: not as waited for after 0\.01 s"):
                follower.wait_for(lambda now: not now.endpoints, 0.01)

    def test_a_refusal_reaches_those_who_wait_and_those_who_come_later(self, in_thread: InThread) -> None:
        with EndpointFollower(CLUSTER, "w") as follower:
            waiting = in_thread(lambda: follower.latest)
            Watch.last.fail(InvalidRequest("no such name"))
            for ask in (waiting, lambda: follower.latest):
                with pytest.raises(InvalidRequest, match="no such name"):
                    ask()


@pytest.fixture
def group() -> Iterator[ActorPool]:
    with ActorPool("w", client=CLUSTER, timeout=7.0) as made:
        yield made


class TestAPool:
    def test_each_is_called_in_its_turn_and_all_in_their_order(self, group: ActorPool) -> None:
        Watch.last.say(found(1, 2, 3))
        assert group.size == 3
        called = [group.call("add", (1,), {"a": 2}, timeout=3.0) for _ in range(6)]
        assert sorted(called[:3]) == sorted(called[3:])
        assert len(set(map(str, called))) == 3
        assert called[0][1:] == ("add", (1,), {"a": 2}, 3.0)
        labels = [call[0] for call in group.broadcast("reset")]
        assert labels == [f"/ann/a/w (/ann/a/{number}:0)" for number in (1, 2, 3)]
        assert [client.timeout for client in Client.made] == [7.0] * 3

    def test_those_that_stay_keep_their_clients_and_those_that_went_have_ended(self, group: ActorPool) -> None:
        Watch.last.say(found(1, 2))
        first, second = Client.made
        Watch.last.say(found(2, 3))
        assert group.members == [second, Client.made[2]]
        assert first.member.now == Location(None, "/ann/a/1:0 has ended")
        assert second.member.now.place.address == "h:2"

    def test_who_waits_for_a_number_goes_on_when_there_are_so_many(self, group: ActorPool, in_thread: InThread) -> None:
        waiting = in_thread(lambda: group.wait_for_size(2, WAIT_S))
        Watch.last.say(found(1))
        Watch.last.say(found(1, 2))
        assert waiting() is None
        with pytest.raises(DeadlineExceeded, match=r"2 of 3 actors 'w' after 0\.01 s"):
            group.wait_for_size(3, 0.01)

    def test_without_an_actor_there_is_nobody_to_call(self, group: ActorPool, in_thread: InThread) -> None:
        with pytest.raises(Unavailable, match="no actor 'w' answers now"):
            group.call("add")
        assert group.broadcast("add") == []
        waiting = in_thread(lambda: group.wait_for_size(1, WAIT_S))
        Watch.last.say(found(ended="job /ann/a has ended"))
        for ask in (waiting, lambda: group.call("add"), lambda: group.wait_for_size(1, WAIT_S)):
            with pytest.raises(Unavailable, match="no actor 'w' will answer: job /ann/a has ended"):
                ask()
        Watch.last.say(found(1))
        assert group.call("add")

    def test_a_refusal_of_the_controller_is_raised(self, group: ActorPool, in_thread: InThread) -> None:
        waiting = in_thread(lambda: group.wait_for_size(1, WAIT_S))
        Watch.last.fail(InvalidRequest("no such name"))
        for ask in (waiting, lambda: group.call("add")):
            with pytest.raises(InvalidRequest, match="no such name"):
                ask()

    def test_one_that_was_closed_lets_everybody_go(self, in_thread: InThread) -> None:
        group = ActorPool("w", client=CLUSTER)
        Watch.last.say(found(1, 2))
        waiting = in_thread(lambda: group.wait_for_size(3, WAIT_S))
        group.close()
        assert Watch.last.states == ["started", "stopped"]
        assert [client.closed for client in Client.made] == [True, True]
        assert (group.size, group.members) == (0, [])
        for ask in (waiting, lambda: group.call("add"), lambda: group.broadcast("add"), lambda: group.wait_for_size(1)):
            with pytest.raises(Conflict, match="the ActorPool of 'w' was closed; make a new one"):
                ask()


def test_in_a_fork_nothing_of_the_parent_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sockets are shared: the parent would lose its connections."""
    for module, make in ((pool, lambda: ActorPool("w", client=CLUSTER)), (follow, lambda: EndpointFollower(CLUSTER))):
        made = make()
        watch = Watch.last
        watch.say(found(1))
        with monkeypatch.context() as there:
            there.setattr(module, "in_fork", lambda: True)
            made.close()
        assert watch.states == ["started"]
        assert not any(client.closed for client in Client.made)
        made.close()
        assert watch.states == ["started", "stopped"]
        Client.made.clear()
