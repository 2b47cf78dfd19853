"""Which room an attempt gets: its user's, the one it was started in, or one in which nothing starts."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from iris.worker.attempts.rooms import Room, Rooms
from iris.worker.users.identity import TaskIdentity
from iris.worker.users.uids import TaskUsers, UidRange

ANN, BOB = TaskIdentity(2000, (44,)), TaskIdentity(2001, (44,))


class Bench:
    def __init__(self, users: TaskUsers | None, why: str = "") -> None:
        self.made: list[tuple[TaskIdentity | None, str, str]] = []
        self.why = why
        self.rooms = Rooms(self.make, users)

    def make(self, identity: TaskIdentity | None, user: str, refusal: str) -> Room:
        if self.why and identity is not None:
            raise OSError(self.why)
        self.made.append((identity, user, refusal))
        return cast(Room, SimpleNamespace(identity=identity, refusal=refusal))

    def of(self, attempt_id: str) -> Room:
        return self.rooms.at(self.rooms.find(attempt_id))


def users(root: Path, last: int = 2001) -> TaskUsers:
    return TaskUsers(root, UidRange(2000, last), (44,))


def test_without_users_of_their_own_all_share_one() -> None:
    bench = Bench(None)
    assert bench.of("/ann/a/0:0") is bench.of("/bob/b/0:0") is bench.rooms.all()[0]
    assert bench.made == [(None, "", "")]


def test_each_user_has_one_which_is_made_once(tmp_path: Path) -> None:
    bench = Bench(users(tmp_path))
    for attempt in ("/ann/a/0:0", "/bob/b/0:0", "/ann/c/d/1:7"):
        bench.of(attempt)
    assert bench.made == [(ANN, "ann", ""), (BOB, "bob", "")]
    again = Bench(users(tmp_path))
    assert [room.identity for room in again.rooms.all()] == [ANN, BOB, None]


def test_where_there_is_no_uid_or_no_directory_nothing_starts(tmp_path: Path) -> None:
    bench = Bench(users(tmp_path, 2000))
    assert bench.of("/ann/a/0:0").identity == ANN
    refusing = bench.of("/bob/b/0:0")
    assert (refusing.identity, "user 'bob' gets no uid on this host" in refusing.refusal) == (None, True)
    assert refusing is not bench.rooms.at(bench.rooms.find_held("/ann/a/0:0", 0)), "which is the worker's own"
    full = Bench(users(tmp_path), why="no space left")
    assert full.of("/ann/a/0:0").refusal == "the worker cannot start it: no space left"
    full.why = ""
    assert full.of("/ann/a/0:0").refusal == "", "it is tried again"


def test_what_was_started_before_stays_in_its_room(tmp_path: Path) -> None:
    users(tmp_path).identity("ann")
    bench = Bench(users(tmp_path))
    assert bench.rooms.at(bench.rooms.find_held("/ann/a/0:0", 2000)).identity == ANN
    assert bench.of("/ann/b/0:0").identity == ANN
    assert len(bench.made) == 1
    assert bench.rooms.at(bench.rooms.find_held("/ann/a/1:0", 0)).identity is None, "as root, before"
    off = Bench(None)
    assert off.rooms.at(off.rooms.find_held("/ann/a/0:0", 2000)).identity == TaskIdentity(2000)
