"""The rule of how many threads take tasks, and the thread that leads them."""

import signal
import threading
import time
from collections.abc import Sequence
from typing import Any, cast

import pytest

from marin.execution.run.crew import Crew, Workers


@pytest.mark.parametrize(
    ("crew", "ready", "limit", "wanted"),
    [
        (Crew(1, 0, 0), 5, 100, 1),  # on local files one thread takes short tasks
        (Crew(1, 1, 0), 5, 100, 0),
        (Crew(1, 1, 1), 5, 100, 1),  # its function takes long
        (Crew(1, 4, 4), 50, 100, 4),  # as many again
        (Crew(1, 4, 4), 2, 100, 2),  # no more than there are tasks
        (Crew(1, 4, 4), 50, 6, 2),  # no more than may work at once
        (Crew(1, 4, 4), 50, 4, 0),
        (Crew(64, 3, 0), 100, 800, 61),  # where threads wait for answers
        (Crew(64, 70, 0), 100, 800, 0),
    ],
)
def test_threads_are_added_until_enough_are_not_kept_busy(crew: Crew, ready: int, limit: int, wanted: int) -> None:
    assert crew.wanted(ready, limit) == wanted


@pytest.mark.parametrize(
    ("crew", "rests"),
    [
        (Crew(1, 1, 0), False),
        (Crew(1, 2, 0), True),  # the help is not needed any more
        (Crew(1, 2, 1), False),
        (Crew(1, 8, 4), False),  # these four may be kept busy, too
        (Crew(1, 8, 3), True),
        (Crew(64, 64, 0), False),
        (Crew(64, 65, 0), True),
    ],
)
def test_a_thread_that_was_added_rests_when_functions_are_short_again(crew: Crew, rests: bool) -> None:
    assert crew.is_one_too_many is rests


@pytest.mark.parametrize("starters", [1, 2, 64])
@pytest.mark.parametrize("stuck", [0, 1, 5, 64, 200])
def test_a_thread_that_was_just_wanted_does_not_rest(starters: int, stuck: int) -> None:
    before = Crew(starters, stuck, stuck)
    after = Crew(starters, before.active + before.wanted(1000, 1000), stuck)
    assert not after.is_one_too_many
    assert after.wanted(1000, 1000) == 0


def test_ctrl_c_twice_while_another_thread_adds_tasks() -> None:
    """The leading thread waits for the lock when the second one comes."""
    workers = Workers(print, 1)

    class Slow(list[Any]):
        def __iter__(self) -> Any:
            for _ in range(20):
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                time.sleep(0.005)
            return super().__iter__()

    adds = threading.Timer(0.05, workers.add, [cast(Sequence[Any], Slow())])
    adds.start()
    with pytest.raises(KeyboardInterrupt):
        workers.lead(lambda: False)
    adds.join()
