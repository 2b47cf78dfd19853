"""How actors end: shutdown, crashes, restarts."""

import contextlib
import os
import queue

import pytest

from fray.actor import ActorFuture, current_actor
from fray.errors import ActorLost
from fray.testing.contract.actor_subjects import ActorTests, Counter, create
from fray.testing.fixture import LONG, SMALL, BackendFixture
from fray.testing.signals import Flag, Tally, eventually
from fray.types import ActorConfig
from rigging.errors import Conflict


class Mortal(Counter):
    """Counts its restarts."""

    def __init__(self, lives: Tally) -> None:
        super().__init__(100 * lives.add())

    def die(self) -> None:
        """Crash."""
        os._exit(3)

    def die_once(self, deaths: Tally) -> str:
        """Crash on the first try."""
        if deaths.add() == 1:
            os._exit(3)
        return "survived"


class Mindful(Counter):
    """Waits for its shutdown event."""

    def __init__(self) -> None:
        super().__init__()
        self.end = current_actor().shutdown_event

    def until_told(self, begun: Flag, told: Flag) -> bool:
        """Wait for the shutdown event. Set one flag before and one after."""
        begun.set()
        if self.end.wait(LONG):
            told.set()
        return self.end.is_set()

    def leave(self) -> None:
        """End this actor."""
        self.end.set()


class TestActorLifetimes(ActorTests):
    """ActorConfig.max_restarts, max_task_retries, and ActorGroup.shutdown."""

    def test_shutdown_ends_waiting_calls_and_refuses_new_ones(self, fray_backend: BackendFixture) -> None:
        group = fray_backend.client.create_actor_group(
            Counter, name=fray_backend.name("ends"), count=1, resources=SMALL
        )
        (counter,) = group.wait_ready(timeout=LONG)
        begun, end = fray_backend.flag("begun"), fray_backend.flag("end")
        running = counter.wait_for.remote(end, begun)
        queued = counter.add.remote(1)
        begun.wait()
        group.shutdown()
        told: queue.SimpleQueue[ActorFuture[int]] = queue.SimpleQueue()
        queued.add_done_callback(told.put)
        with pytest.raises((Conflict, ActorLost)):
            told.get(timeout=LONG).result(LONG)
        with pytest.raises((Conflict, ActorLost)):
            counter.add(1)
        end.set()
        # It was let finish, or it was cut off: never left hanging.
        with contextlib.suppress(ActorLost, Conflict):
            assert running.result(LONG) is True
        eventually(group.is_done, "the group has ended")
        group.shutdown()

    def test_the_clients_shutdown_ends_its_actors(self, fray_backend: BackendFixture) -> None:
        client, name = fray_backend.harness.make_client(), fray_backend.name("ends")
        counter = client.create_actor(Counter, name=name, resources=SMALL)
        assert counter.add(1) == 1
        client.shutdown()

        def refused() -> bool:
            try:
                counter.add(1)
            except (Conflict, ActorLost):
                return True
            return False

        eventually(refused, "calls are refused")
        # Its name is free, and the new actor is not taken for the old one.
        assert create(fray_backend, Counter, 5, name=name).add(1) == 6

    def test_an_actor_is_told_when_its_group_is_shut_down(self, fray_backend: BackendFixture) -> None:
        group = fray_backend.client.create_actor_group(
            Mindful, name=fray_backend.name("told"), count=2, resources=SMALL
        )
        flags = [(fray_backend.flag(f"begun-{n}"), fray_backend.flag(f"told-{n}")) for n in range(2)]
        for actor, (begun, told) in zip(group.wait_ready(timeout=LONG), flags, strict=True):
            actor.until_told.remote(begun, told)
        for begun, told in flags:
            begun.wait()
            assert not told.is_set()
        group.shutdown()
        for _, told in flags:
            assert told.wait()

    def test_an_actor_is_told_when_its_client_is_shut_down(self, fray_backend: BackendFixture) -> None:
        client = fray_backend.harness.make_client()
        begun, told = fray_backend.flag("begun"), fray_backend.flag("told")
        created = client.create_actor(Mindful, name=fray_backend.name("told"), resources=SMALL)
        created.until_told.remote(begun, told)
        begun.wait()
        client.shutdown()
        assert told.wait()

    def test_a_hosted_actor_is_told_of_its_end(self, fray_backend: BackendFixture) -> None:
        hosted = fray_backend.client.host_actor(Mindful, name=fray_backend.name("told"))
        begun, told = fray_backend.flag("begun"), fray_backend.flag("told")
        hosted.until_told.remote(begun, told)
        begun.wait()
        hosted.shutdown()
        assert told.wait()

    def test_an_actor_ends_itself_for_good(self, fray_backend: BackendFixture) -> None:
        config = ActorConfig(max_restarts=1)
        group = fray_backend.client.create_actor_group(
            Mindful, name=fray_backend.name("leaves"), count=1, resources=SMALL, actor_config=config
        )
        (leaver,) = group.wait_ready(timeout=LONG)
        with contextlib.suppress(ActorLost):
            leaver.leave()
        eventually(group.is_done, "the group has ended")

        def refused() -> bool:
            try:
                leaver.add(1)
            except (Conflict, ActorLost):
                return True
            return False

        eventually(refused, "calls are refused")

    def test_one_that_crashed_is_started_again(self, fray_backend: BackendFixture) -> None:
        lives = fray_backend.tally("lives")
        mortal = create(fray_backend, Mortal, lives, actor_config=ActorConfig(max_restarts=1))
        assert mortal.add(1) == 101
        if not fray_backend.capabilities.actor_restarts:
            # It lives where the test does: its process is the one that asks.
            assert mortal.apply(lambda _: os.getpid()) == os.getpid()
            return
        with pytest.raises(ActorLost):
            mortal.die.remote().result(LONG)
        # The same handle reaches the next life, whose state is new.
        eventually(lambda: answers(mortal.add, 1) == 201, "the restarted actor answers")
        assert lives.count() == 2
        with pytest.raises(ActorLost):
            mortal.die()
        eventually(lambda: answers(mortal.add, 1) is None, "its lives are used up")
        assert lives.count() == 2

    def test_the_others_of_a_group_go_on_without_one_that_is_gone(self, fray_backend: BackendFixture) -> None:
        if not fray_backend.capabilities.actor_restarts:
            return
        group = fray_backend.client.create_actor_group(
            Mortal, fray_backend.tally("lives"), name=fray_backend.name("mortal"), count=2, resources=SMALL
        )
        mortal, other = group.wait_ready(timeout=LONG)
        waiting = mortal.die.remote(), mortal.add.remote(1)
        for call in waiting:
            with pytest.raises(ActorLost, match="mortal"):
                call.result(LONG)
        with pytest.raises(ActorLost, match="mortal"):
            mortal.add.remote(1).result(LONG)
        assert other.add(0) in (100, 200)
        assert not group.is_done()

    def test_one_without_restarts_is_gone_for_good(self, fray_backend: BackendFixture) -> None:
        if not fray_backend.capabilities.actor_restarts:
            return
        lives = fray_backend.tally("lives")
        group = fray_backend.client.create_actor_group(
            Mortal, lives, name=fray_backend.name("mortal"), count=1, resources=SMALL
        )
        (mortal,) = group.wait_ready(timeout=LONG)
        with pytest.raises(ActorLost, match="mortal"):
            mortal.die()
        with pytest.raises(ActorLost, match="mortal"):
            mortal.add(1)
        eventually(group.is_done, "the group has ended")
        assert group.ready_count == 0
        assert lives.count() == 1

    def test_a_call_is_repeated_after_a_crash_where_that_is_asked_for(self, fray_backend: BackendFixture) -> None:
        lives, deaths = fray_backend.tally("lives"), fray_backend.tally("deaths")
        if not fray_backend.capabilities.actor_restarts:
            deaths.add()
        config = ActorConfig(max_restarts=1, max_task_retries=1)
        mortal = create(fray_backend, Mortal, lives, actor_config=config)
        assert mortal.die_once(deaths) == "survived"
        assert deaths.count() == 2


def answers(method: object, *args: object) -> object:
    """Return the method's result, or None if the actor is lost."""
    assert callable(method)
    try:
        return method(*args)
    except ActorLost:
        return None
