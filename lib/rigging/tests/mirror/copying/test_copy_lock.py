"""One copier of a file in a process: others wait, and a forked child waits only for its own threads."""

import os
import threading
from typing import Any

from rigging.mirror.copying.copy_lock import SMALL_BYTES, copy_lock, stripe
from rigging.mirror.copying.request import CopyRequest, FileVersion, Settings
from rigging.mirror.prefix_store import local_store


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

    def copy() -> None:
        with copy_lock("a", local_store(), Settings()):
            entered.set()
            leave.wait(30)

    thread = threading.Thread(target=copy)
    thread.start()
    assert entered.wait(30)
    child = os.fork()
    if not child:
        done = threading.Event()

        def copy_in_child() -> None:
            with copy_lock("a", local_store(), Settings()):
                done.set()

        threading.Thread(target=copy_in_child, daemon=True).start()
        os._exit(0 if done.wait(10) else 1)
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        leave.set()
        thread.join()


def test_two_threads_copy_one_file_one_after_the_other(make_regions: Any) -> None:
    make_regions("memory")
    inside, most = 0, 0
    guard, together = threading.Lock(), threading.Barrier(4, timeout=30)

    def copy() -> None:
        nonlocal inside, most
        together.wait()
        for _ in range(20):
            with copy_lock("a", local_store(), Settings()):
                with guard:
                    inside += 1
                    most = max(most, inside)
                with guard:
                    inside -= 1

    threads = [threading.Thread(target=copy) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
