from concurrent.futures import ThreadPoolExecutor

import pytest

from rigging.process.latch import Latch


def test_it_lets_all_through_once_it_is_open() -> None:
    latch = Latch()
    with ThreadPoolExecutor(8) as pool:
        waits = [pool.submit(latch.wait, 60) for _ in range(8)]
        assert not latch.is_open()
        assert not any(wait.done() for wait in waits)
        latch.open()
        assert [wait.result(60) for wait in waits] == [True] * 8
    assert latch.is_open()
    assert latch.wait()
    assert latch.wait(1e12), "beyond what locks can wait"


@pytest.mark.parametrize("timeout", [0, -1, 0.01])
def test_it_says_that_it_is_closed_when_the_time_is_over(timeout: float) -> None:
    assert Latch().wait(timeout) is False
