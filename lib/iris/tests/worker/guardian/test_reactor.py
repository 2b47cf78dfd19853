"""Timers and descriptors: each handler when it is due, in its order, and never after it was taken back."""

import contextlib
import os
import time
import weakref
from collections.abc import Iterator

import pytest

from iris.worker.guardian.reactor import READ, WRITE, Reactor


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reactor(clock: Clock) -> Iterator[Reactor]:
    made = Reactor(clock)
    yield made
    made.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):
            os.close(end)


def test_timers_run_once_in_the_order_in_which_they_are_due(reactor: Reactor, clock: Clock) -> None:
    ran: list[str] = []
    for name, seconds in (("late", 3.0), ("soon", 1.0), ("middle", 2.0), ("cancelled", 1.5)):
        timer = reactor.call_later(seconds, lambda name=name: ran.append(name))  # type: ignore[misc]
    timer.cancel()
    reactor.call_later(0.0, lambda: reactor.call_later(0.0, lambda: ran.append("at once")) and None)
    reactor.turn(0)
    assert ran == ["at once"], "a timer may set another"
    clock.now += 2.0
    reactor.turn(0)
    assert ran[1:] == ["soon", "middle"]
    clock.now += 5.0
    reactor.turn(0)
    reactor.turn(0)
    assert ran[3:] == ["late"]


def test_a_turn_waits_for_the_next_timer_and_no_longer_than_it_was_told() -> None:
    reactor, ran = Reactor(), list[float]()
    began = time.monotonic()
    reactor.turn(0.02)
    assert time.monotonic() - began >= 0.015
    reactor.call_later(0.02, lambda: ran.append(1.0))
    while not ran:
        reactor.turn()
    reactor.call_later(3600, lambda: None)
    reactor.turn(0.02)
    reactor.call_later(-5.0, lambda: ran.append(2.0))
    reactor.turn(None)
    assert ran == [1.0, 2.0], "what is overdue is no negative time to wait"
    assert time.monotonic() - began < 60
    reactor.close()


def test_what_its_handlers_hold_is_let_go_with_it(pipe: tuple[int, int]) -> None:
    """What they belong to mostly knows the reactor, too: such a circle would keep descriptors open."""
    before = set(os.listdir("/proc/self/fd"))
    reactor, clients = Reactor(), [Clock() for _ in range(3)]
    reactor.watch(pipe[0], clients[0].__call__)  # type: ignore[arg-type]
    reactor.call_later(3600, clients[1].__call__)  # type: ignore[arg-type]
    reactor.call_last(clients[2].__call__)  # type: ignore[arg-type]
    held = [weakref.ref(client) for client in clients]
    clients.clear()
    reactor.close()
    assert [client() for client in held] == [None] * 3
    assert set(os.listdir("/proc/self/fd")) <= before, "its own, too"


def test_a_handler_is_called_while_there_is_something_to_read(reactor: Reactor, pipe: tuple[int, int]) -> None:
    read, write = pipe
    calls: list[bytes] = []
    reactor.watch(read, lambda: calls.append(os.read(read, 1)))
    reactor.turn(0)
    assert calls == []
    os.write(write, b"ab")
    for _ in range(3):
        reactor.turn(0)
    assert calls == [b"a", b"b"]
    os.close(write)
    reactor.turn(0)
    assert calls[2:] == [b""], "a hang-up is something to read"


def test_what_is_waited_for_can_be_changed(reactor: Reactor, pipe: tuple[int, int]) -> None:
    _, write = pipe
    calls: list[str] = []
    reactor.watch(write, lambda: calls.append("called"))
    reactor.turn(0)
    assert calls == [], "it is writable, and watched for reading"
    reactor.want(write, READ | WRITE)
    reactor.turn(0)
    assert calls == ["called"]
    reactor.want(write, READ)
    reactor.turn(0)
    assert calls == ["called"]


def test_what_is_not_watched_any_more_is_not_called_in_the_same_turn(reactor: Reactor, pipe: tuple[int, int]) -> None:
    read, write = pipe
    other_read, other_write = os.pipe()
    calls: list[int] = []

    def only_one(mine: int, other: int) -> None:
        calls.append(mine)
        reactor.unwatch(other)
        reactor.unwatch(other)

    reactor.watch(read, lambda: only_one(read, other_read))
    reactor.watch(other_read, lambda: only_one(other_read, read))
    for end in (write, other_write):
        os.write(end, b"x")
    reactor.turn(0)
    assert len(calls) == 1
    os.close(other_read)
    os.close(other_write)


def test_more_descriptors_than_one_turn_serves_are_all_served(reactor: Reactor) -> None:
    pipes = [os.pipe() for _ in range(150)]
    seen: set[int] = set()
    for read, write in pipes:
        reactor.watch(read, lambda read=read: seen.add(read))  # type: ignore[misc]
        os.write(write, b"x")
    for _ in range(3):
        reactor.turn(0)
    assert seen == {read for read, _ in pipes}
    for end in (end for ends in pipes for end in ends):
        os.close(end)
