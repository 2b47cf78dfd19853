"""The ends of actors: shutdown, crashes, restarts."""

import contextlib
import os

import pytest

from fray.errors import ActorLost
from fray.testing.contract.actors import ActorTests, Counter, create
from fray.testing.fixture import LONG, SMALL, BackendFixture
from fray.testing.signals import Tally, eventually
from fray.types import ActorConfig
from rigging.errors import Conflict


class Mortal(Counter):
    """Counts its lives."""

    def __init__(self, lives: Tally) -> None:
        super().__init__(100 * lives.add())

    def die(self) -> None:
        """Crash."""
        os._exit(3)

    def die_once(self, deaths: Tally) -> str:
        """Crash at the first try."""
        if deaths.add() == 1:
            os._exit(3)
        return "survived"


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
        with pytest.raises((Conflict, ActorLost)):
            queued.result(LONG)
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
    """Return the method's result, or None when the actor is lost."""
    assert callable(method)
    try:
        return method(*args)
    except ActorLost:
        return None
