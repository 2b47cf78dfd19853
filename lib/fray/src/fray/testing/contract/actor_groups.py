"""Groups of actors: becoming ready, discovery, names."""

import pytest

from fray.actor import ActorGroup, current_actor
from fray.errors import JobAlreadyExists, JobFailed
from fray.testing.contract.actor_subjects import ActorTests, Broken, Counter
from fray.testing.fixture import LONG, SMALL, BackendFixture
from fray.testing.signals import Flag, eventually
from rigging.errors import DeadlineExceeded, InvalidRequest


class Gate:
    """An actor that is ready once its flag is set."""

    def __init__(self, flags: list[Flag]) -> None:
        self.index = current_actor().index
        flags[self.index].wait(LONG)

    def where(self) -> int:
        """Return its index."""
        return self.index


def group_of(backend: BackendFixture, cls: type, *args: object, count: int, name: str | None = None) -> ActorGroup:
    """Return a small group with a unique name."""
    return backend.client.create_actor_group(
        cls, *args, name=name or backend.name("group"), count=count, resources=SMALL
    )


class TestActorGroups(ActorTests):
    """Client.create_actor_group."""

    def test_members_know_their_places(self, fray_backend: BackendFixture) -> None:
        name = fray_backend.name("group")
        handles = group_of(fray_backend, Counter, 1, count=3, name=name).wait_ready(timeout=LONG)
        assert [tuple(handle.who_am_i()) for handle in handles] == [(name, 0), (name, 1), (name, 2)]
        futures = [handle.add.remote(n) for n, handle in enumerate(handles)]
        assert [future.result(LONG) for future in futures] == [1, 2, 3]

    def test_they_become_ready_one_by_one(self, fray_backend: BackendFixture) -> None:
        flags = [fray_backend.flag(f"gate-{i}") for i in range(3)]
        group = group_of(fray_backend, Gate, flags, count=3)
        assert (group.ready_count, group.is_done(), group.discover_new()) == (0, False, [])
        flags[1].set()
        (first,) = group.wait_ready(1, timeout=LONG)
        assert first.where() == 1
        assert group.ready_count == 1
        assert [handle.where() for handle in group.discover_new()] == [1]
        assert group.discover_new() == []
        with pytest.raises(DeadlineExceeded, match="1 of 3"):
            group.wait_ready(timeout=0.05)
        flags[2].set()
        flags[0].set()
        assert [handle.where() for handle in group.wait_ready(timeout=LONG)] == [0, 1, 2]
        assert sorted(handle.where() for handle in group.discover_new()) == [0, 2]
        assert group.discover_new() == []
        assert not group.is_done()

    def test_more_than_it_has_are_never_ready(self, fray_backend: BackendFixture) -> None:
        group = group_of(fray_backend, Counter, count=2)
        with pytest.raises(InvalidRequest, match="2 actors, not 3"):
            group.wait_ready(3)
        with pytest.raises(InvalidRequest, match="at least 1"):
            group_of(fray_backend, Counter, count=0)

    def test_constructors_that_fail(self, fray_backend: BackendFixture) -> None:
        group = group_of(fray_backend, Broken, count=2)
        with pytest.raises(JobFailed, match="no checkpoint to start from"):
            group.wait_ready(timeout=LONG)
        eventually(group.is_done, "both have ended")
        assert group.ready_count == 0

    def test_a_name_is_taken_until_shutdown(self, fray_backend: BackendFixture) -> None:
        name = fray_backend.name("taken")
        group = group_of(fray_backend, Counter, count=2, name=name)
        group.wait_ready(timeout=LONG)
        with pytest.raises(JobAlreadyExists, match=name):
            group_of(fray_backend, Counter, count=1, name=name)
        group.shutdown()
        eventually(group.is_done, "both have ended")
        assert group.ready_count == 0
        assert group_of(fray_backend, Counter, 5, count=1, name=name).wait_ready(timeout=LONG)[0].add(0) == 5

    def test_actors_and_jobs_may_share_a_name(self, fray_backend: BackendFixture) -> None:
        name, flag = fray_backend.name("both"), fray_backend.flag("ran")
        group_of(fray_backend, Counter, count=1, name=name).wait_ready(timeout=LONG)
        fray_backend.call(flag.set, name=name, resources=SMALL).wait(LONG)
        assert flag.is_set()
