"""Actors of fray as older programs make and call them."""

import queue
import threading

import pytest

from fray import LocalActorHandle, LocalActorMethod, LocalClient
from fray.actor import HostedActor, current_actor


class Counter:
    def __init__(self, start=0):
        self.value = start
        self.ended = current_actor().shutdown_event

    def add(self, number):
        self.value += number
        return self.value

    def when_ended(self):
        return self.ended

    def leave(self):
        current_actor().shutdown_event.set()


@pytest.fixture
def client():
    with LocalClient() as made:
        yield made


@pytest.mark.compatible("host_actor(...) -> HostedActor with .handle, .shutdown()", since="0.1.0")
@pytest.mark.compatible("fray.actor.HostedActor", since="0.1.0")
def test_a_hosted_actor(client):
    hosted = client.host_actor(Counter, 1, name="counter")
    assert isinstance(hosted, HostedActor)
    assert hosted.handle.add.remote(1).result() == 2
    assert hosted.add(1) == 3
    assert isinstance(hosted.handle, LocalActorHandle)
    assert isinstance(hosted.handle.add, LocalActorMethod)
    hosted.shutdown()
    again = client.host_actor(Counter, 5, name="counter")
    assert again.handle.add(1) == 6
    again.shutdown()
    again.shutdown()


@pytest.mark.compatible("ActorContext.shutdown_event", since="0.1.0")
def test_an_actor_is_told_of_its_end(client):
    hosted = client.host_actor(Counter, name="counter")
    ended = hosted.when_ended()
    assert isinstance(ended, threading.Event)
    assert not ended.is_set()
    hosted.shutdown()
    assert ended.is_set()


@pytest.mark.compatible("ActorContext.shutdown_event.set(): the actor ends itself", since="0.1.0")
def test_an_actor_ends_itself(client):
    group = client.create_actor_group(Counter, name="leaver", count=1)
    (leaver,) = group.wait_ready()
    leaver.leave()
    assert group.is_done()


@pytest.mark.compatible("handle.method.remote(...).add_done_callback(fn): fn(future) at its end", since="0.1.0")
def test_a_call_that_tells_of_its_end(client):
    counter = client.create_actor(Counter, name="counter")
    ended = queue.Queue()
    future = counter.add.remote(2)
    future.add_done_callback(ended.put)
    assert ended.get(timeout=30) is future
    assert future.result() == 2


@pytest.mark.compatible("group.wait_ready(count=2) returns exactly two", since="0.1.0")
@pytest.mark.compatible("create_actor(actor_class=), create_actor_group(actor_class=)", since="0.1.0")
def test_some_of_a_group(client):
    group = client.create_actor_group(actor_class=Counter, name="workers", count=3)
    assert len(group.wait_ready()) == 3
    assert len(group.wait_ready(count=2)) == 2
    assert client.create_actor(actor_class=Counter, name="single").add(4) == 4
    group.shutdown()
