import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

from fray.testing.forks import exit_code_of
from rigging.process.fork_lock import ForkLock


def test_one_thread_at_a_time_is_inside() -> None:
    lock, inside, most = ForkLock(), [0], [0]

    def count(_: int) -> None:
        for _ in range(500):
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))
    assert most == [1]


def test_it_is_free_in_a_fork_and_stays_held_in_the_parent() -> None:
    lock, held, done = ForkLock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(30)
    child = os.fork()
    if child == 0:
        signal.alarm(10)  # its default action ends it, and that is seen
        with lock:
            os._exit(0)
    assert exit_code_of(child) == 0
    done.set()
    holder.join()
    with lock:
        pass


def test_a_fork_within_the_block_leaves_it_in_order() -> None:
    lock = ForkLock()
    child = -1
    with lock:
        child = os.fork()
    if child == 0:
        signal.alarm(10)
        with lock:
            os._exit(0)
    assert exit_code_of(child) == 0
