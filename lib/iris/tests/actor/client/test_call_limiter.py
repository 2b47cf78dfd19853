"""The limit on calls under way: whoever waits gets in when there is room, however many leave at once."""

import threading

from iris.actor.client.call_limiter import CallLimiter
from rigging.testing import eventually


def test_all_who_wait_get_in_when_as_many_leave_at_once() -> None:
    limiter = CallLimiter(8)
    for _ in range(8):
        limiter.enter()
    inside = []

    def go_in() -> None:
        limiter.enter()
        inside.append(threading.get_ident())

    threads = [threading.Thread(target=go_in, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    eventually(lambda: limiter._waiting == 8, "all wait")
    for _ in range(8):
        limiter.leave()
    for thread in threads:
        thread.join(20)
    assert len(inside) == 8, "nobody waits where there is room"


def test_nobody_gets_in_beyond_the_room() -> None:
    limiter = CallLimiter(3)
    lock, now, most = threading.Lock(), 0, 0

    def go_in_and_out() -> None:
        nonlocal now, most
        for _ in range(300):
            limiter.enter()
            with lock:
                now += 1
                most = max(most, now)
            with lock:
                now -= 1
            limiter.leave()

    threads = [threading.Thread(target=go_in_and_out) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert (now, most <= 3) == (0, True)


def test_one_who_leaves_makes_room_for_one() -> None:
    limiter = CallLimiter(2)
    limiter.enter()
    limiter.enter()
    limiter.leave()
    limiter.enter()
    inside = threading.Event()

    def go_in() -> None:
        limiter.enter()
        inside.set()

    thread = threading.Thread(target=go_in, daemon=True)
    thread.start()
    eventually(lambda: limiter._waiting == 1, "it waits: two are inside again")
    assert not inside.is_set()
    limiter.leave()
    assert inside.wait(20)
    thread.join()
