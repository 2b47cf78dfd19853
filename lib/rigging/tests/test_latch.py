import threading

import pytest

from rigging.latch import Latch


def test_it_lets_all_through_once_it_is_open() -> None:
    latch = Latch()
    passed: list[bool] = []
    threads = [threading.Thread(target=lambda: passed.append(latch.wait(60))) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert not latch.is_open()
    assert passed == []
    latch.open()
    for thread in threads:
        thread.join(60)
    assert passed == [True] * 8
    assert latch.is_open()
    assert latch.wait()


@pytest.mark.parametrize("timeout", [0, -1, 0.01])
def test_it_says_that_it_is_closed_when_the_time_is_over(timeout: float) -> None:
    assert Latch().wait(timeout) is False


def test_a_time_beyond_what_locks_can_wait_is_for_ever() -> None:
    latch = Latch()
    thread = threading.Thread(target=latch.open)
    thread.start()
    assert latch.wait(1e12)
    thread.join()
