"""Where an actor is: what is said of the endpoints that answer, and when those who follow are told."""

from collections.abc import Callable
from typing import Any

import pytest

from iris.actor.client.places import ACTOR_KEY, FixedPlace, GroupMember, Location, NamedPlace, Place, place_of
from iris.client.endpoints import Endpoint, EndpointSet
from rigging.errors import NotFound


def endpoint(number: int, **metadata: str) -> Endpoint:
    return Endpoint(name="/u/job/counter", address=f"h:{number}", attempt_id=f"/u/job/{number}:0", metadata=metadata)


def place(number: int) -> Place:
    return Place(f"h:{number}", f"/u/job/{number}:0", "counter")


def answers(*numbers: int, ended: bool = False, reason: str = "") -> EndpointSet:
    return EndpointSet(endpoints=tuple(map(endpoint, numbers)), ended=ended, ended_reason=reason)


def test_the_actors_name_at_its_server_is_in_the_metadata_or_else_the_leaf() -> None:
    assert place_of(endpoint(1)) == place(1)
    assert place_of(endpoint(1, **{ACTOR_KEY: "own"})) == Place("h:1", "/u/job/1:0", "own")


def test_a_fixed_place_is_always_there() -> None:
    fixed = FixedPlace("the counter", place(1))
    fixed.open(lambda: None)
    fixed.close()
    assert (fixed.label, fixed.now) == ("the counter", Location(place(1)))


def test_a_member_of_a_group_is_there_until_it_is_said_to_have_ended() -> None:
    told: list[str] = []
    member = GroupMember(place(1), "counter 1")
    member.open(lambda: told.append("changed"))
    assert (member.label, member.now) == ("counter 1", Location(place(1)))
    member.end("its job has ended")
    assert (member.now, told) == (Location(None, "its job has ended"), ["changed"])
    member.close()
    member.end("again")
    assert told == ["changed"], "nobody follows any more"


class Watch:
    """Stands in for the watch of endpoints; the test says what is found."""

    def __init__(self, connection: object, request: Any, found: Callable[..., Any], failed: Callable[..., Any]) -> None:
        self.request, self.found, self.failed = request, found, failed
        self.running = False

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        self.running = False


@pytest.fixture
def named() -> tuple[NamedPlace, Watch, list[Location]]:
    made: list[Watch] = []

    def make(*arguments: Any) -> Any:
        made.append(Watch(*arguments))
        return made[-1]

    where = NamedPlace(object(), "/u/job/counter", make_watch=make)  # type: ignore[arg-type]
    (watch,) = made
    told: list[Location] = []
    where.open(lambda: told.append(where.now))
    return where, watch, told


Named = tuple[NamedPlace, Watch, list[Location]]


def test_a_name_is_looked_for_from_its_opening_to_its_closing(named: Named) -> None:
    where, watch, told = named
    assert (where.label, watch.request.name, watch.running) == ("/u/job/counter", "/u/job/counter", True)
    assert (where.now, told) == (Location(), [])
    watch.found(answers(1))
    where.close()
    assert (watch.running, where.now) == (False, Location())


def test_of_several_the_latest_is_taken_and_kept_while_it_is_there(named: Named) -> None:
    where, watch, told = named
    watch.found(answers(1, 2))
    assert where.now.place == place(2)
    watch.found(answers(1, 2, 3))
    assert where.now.place == place(2)
    watch.found(answers(1, 3))
    assert where.now.place == place(3)
    watch.found(answers())
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
