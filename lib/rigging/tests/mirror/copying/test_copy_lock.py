import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fray.testing.forks import exit_code_of
from rigging.copying.copy_lock import SMALL_BYTES, copy_lock, stripe
from rigging.copying.request import CopyRequest, FileVersion, Settings
from rigging.prefixes.prefix_store import local_store


def wanted(path: str, size: int) -> CopyRequest:
    return CopyRequest(path, local_store(), FileVersion(size, "1"))


def test_a_file_has_one_lock_and_large_files_have_locks_of_their_own(make_regions: Any) -> None:
    """Else a small copy waits for an hour; and a lock for each file would leave a fencing number for each."""
    make_regions("memory")
    small = [stripe(wanted(f"d/{number}", SMALL_BYTES)) for number in range(5000)]
    large = [stripe(wanted(f"d/{number}", SMALL_BYTES + 1)) for number in range(5000)]
    assert small == [stripe(wanted(f"d/{number}", 0)) for number in range(5000)]
    assert len(set(small)) == 64
    assert 1000 < len(set(large)) < 4096
    assert not set(small) & set(large)


def test_a_forked_child_does_not_wait_for_its_parents_threads(make_regions: Any) -> None:
    make_regions("memory")
    entered, leave = threading.Event(), threading.Event()

    def copy(inside: Callable[[], object]) -> None:
        with copy_lock("a", local_store(), Settings()):
            inside()

    thread = threading.Thread(target=copy, args=(lambda: (entered.set(), leave.wait(30)),))
    thread.start()
    assert entered.wait(30)
    if (child := os.fork()) == 0:
        done = threading.Event()
        threading.Thread(target=copy, args=(done.set,), daemon=True).start()
        os._exit(0 if done.wait(10) else 1)
    try:
        assert exit_code_of(child) == 0
    finally:
        leave.set()
        thread.join()


def test_two_threads_copy_one_file_one_after_the_other(make_regions: Any) -> None:
    make_regions("memory")
    inside, most = 0, 0
    together = threading.Barrier(4, timeout=30)

    def copy(_: int) -> None:
        nonlocal inside, most
        together.wait()
        for _ in range(20):
            with copy_lock("a", local_store(), Settings()):
                inside += 1
                most = max(most, inside)
                inside -= 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(copy, range(4)))
    assert most == 1
