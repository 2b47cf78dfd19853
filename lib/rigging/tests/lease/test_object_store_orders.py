"""Leases on object stores whatever the order in which the requests of several holders arrive."""

import functools
import itertools
import random
import threading
from collections.abc import Callable

import pytest

from rigging.distributed_lock import HEARTBEAT_TIMEOUT, Lease, LeaseLock
from rigging.errors import Denied
from rigging.lease.base import StoredLease
from rigging.lease.object_store import ObjectLeaseStore
from rigging.lease.objects import StoreTrouble
from support.rigging.clock import FakeClock, SkewedClock
from support.rigging.contention import taken


class SteppedObjects:
    """Objects in memory; before each request a thread waits until the scheduler lets it go on."""

    def __init__(self, step: Callable[[], None]) -> None:
        self.step = step
        self._versions = itertools.count(1)
        self.content: dict[str, StoredLease] = {}

    def get(self, key: str) -> StoredLease | None:
        self.step()
        return self.content.get(key)

    def put(self, key: str, content: bytes, expected: str | None) -> str | None:
        self.step()
        found = self.content.get(key)
        if (None if found is None else found.generation) != expected:
            return None
        self.content[key] = StoredLease(content, str(next(self._versions)))
        return self.content[key].generation

    def delete(self, key: str, expected: str) -> bool:
        self.step()
        found = self.content.get(key)
        if found is None or found.generation != expected:
            return False
        del self.content[key]
        return True


class Scheduler:
    """Runs threads one step at a time, in an order that a seed decides."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._waiting: dict[int, threading.Event] = {}
        self._changed = threading.Condition()
        self._running = 0

    def step(self) -> None:
        turn = threading.Event()
        with self._changed:
            self._waiting[threading.get_ident()] = turn
            self._running -= 1
            self._changed.notify()
        assert turn.wait(20)

    def run(self, tasks: list[Callable[[], None]]) -> None:
        failures: list[BaseException] = []

        def guarded(task: Callable[[], None]) -> None:
            try:
                task()
            except BaseException as failure:
                failures.append(failure)
            finally:
                with self._changed:
                    self._running -= 1
                    self._changed.notify()

        threads = [threading.Thread(target=guarded, args=(task,)) for task in tasks]
        self._running = len(threads)
        for thread in threads:
            thread.start()
        with self._changed:
            while True:
                assert self._changed.wait_for(lambda: self._running == 0, 20)
                if not self._waiting:
                    break
                chosen = self._dice.choice(sorted(self._waiting))
                self._running += 1
                self._waiting.pop(chosen).set()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]


@pytest.mark.parametrize("seeds", [range(start, start + 50) for start in range(0, 300, 50)], ids=str)
def test_numbers_grow_with_the_holders_in_every_order_of_requests(seeds: range) -> None:
    """Contenders whose every request may stall for as long as it takes others to come and go.

    Some take the lease as if it was long over at once, so that takeovers happen at any moment too.
    """

    def holds_of(seed: int) -> list[tuple[int, int, int]]:
        scheduler, moments = Scheduler(seed), itertools.count()
        objects = SteppedObjects(scheduler.step)
        holds: list[tuple[int, int, int]] = []

        def contend(clock: SkewedClock) -> None:
            for _ in range(2):
                lock = LeaseLock(ObjectLeaseStore("x.lock", "x.lock", objects), must_renew=True, clock=clock)
                began = next(moments)
                if lock.try_acquire():
                    holds.append((began, next(moments), lock.fencing_token))
                    lock.release()

        scheduler.run([functools.partial(contend, SkewedClock(skew)) for skew in (0.0, -1e6, 0.0)])
        return holds

    for seed in seeds:
        holds = holds_of(seed)
        numbers = [number for _, _, number in holds]
        assert len(set(numbers)) == len(numbers), f"seed {seed}: a number was given twice: {holds}"
        for _, ended, number in holds:
            later = [other for began, _, other in holds if began > ended]
            assert all(other > number for other in later), f"seed {seed}: a number went back: {holds}"


def test_a_number_taken_too_late_is_not_used(clock: FakeClock) -> None:
    """The holder stalls between its lock object and its number until another has both."""
    objects = SteppedObjects(lambda: None)
    slow, quick = (
        LeaseLock(ObjectLeaseStore("x.lock", "x.lock", objects), must_renew=True, clock=clock) for _ in range(2)
    )
    stalled = False

    def stall() -> None:
        nonlocal stalled
        if not stalled and "x.lock" in objects.content and not objects.content.get("x.lock.fence"):
            stalled = True
            assert not quick.try_acquire()
            clock.advance(HEARTBEAT_TIMEOUT)
            assert quick.try_acquire()

    objects.step = stall
    assert not slow.try_acquire()
    assert quick.has_active_holder()
    quick.refresh()
    assert quick.release()


def test_a_number_left_by_a_holder_that_died_before_its_own_is_not_kept() -> None:
    """The same chosen identity comes back after a crash between its lock object and its number."""
    objects = SteppedObjects(lambda: None)
    first = taken(LeaseLock(ObjectLeaseStore("x.lock", "x.lock", objects), "first"))
    assert first.release()

    class Crash(Exception):
        pass

    def crash_at_the_number() -> None:
        if "x.lock" in objects.content:
            raise Crash

    objects.step = crash_at_the_number
    with pytest.raises(Crash):
        LeaseLock(ObjectLeaseStore("x.lock", "x.lock", objects), "second").try_acquire()
    objects.step = lambda: None
    again = taken(LeaseLock(ObjectLeaseStore("x.lock", "x.lock", objects), "second"))
    assert again.fencing_token == 2


def test_a_write_that_arrives_late_is_recognised() -> None:
    """The first attempt is answered with an error, is not there when looked for, and lands all the same."""
    objects = SteppedObjects(lambda: None)
    held_back: list[tuple[str, bytes, str | None]] = []
    honest_put = objects.put

    def late_put(key: str, content: bytes, expected: str | None) -> str | None:
        if not held_back:
            held_back.append((key, content, expected))
            raise StoreTrouble("timed out")
        honest_put(*held_back[0])
        return honest_put(key, content, expected)

    objects.put = late_put  # type: ignore[method-assign]
    lock = taken(LeaseLock(ObjectLeaseStore("x.lock", "x.lock", objects)))
    assert lock.release()


@pytest.mark.parametrize("same_holder", [False, True])
def test_a_lease_without_a_number_is_given_back_unless_its_holder_may_have_it_elsewhere(same_holder: bool) -> None:
    """Else others would wait for a holder that has never begun; what is held elsewhere is not removed."""
    objects = SteppedObjects(lambda: None)
    store = ObjectLeaseStore("stub://x.lock", "x.lock", objects)
    put = objects.put

    def no_numbers(key: str, content: bytes, expected: str | None) -> str | None:
        if key.endswith(".fence"):
            raise Denied("not allowed")
        return put(key, content, expected)

    objects.put = no_numbers  # type: ignore[method-assign]
    with pytest.raises(Denied):
        store.claim(Lease("w", 1.0), None, same_holder=same_holder)
    assert ("x.lock" in objects.content) is same_holder
