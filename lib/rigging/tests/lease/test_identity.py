import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fray.testing.waiting import eventually
from rigging.distributed_lock import create_lock
from rigging.lease.identity import HolderState, ProcessStatus, ProcessTable, acquisition_id, give_up, holder_state


@pytest.fixture(scope="module")
def dead_id() -> str:
    """The id of an acquisition by a process that has ended and was waited for."""
    program = "from rigging.lease.identity import acquisition_id; print(acquisition_id())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


# A process of its own: a fork of one with many threads may never begin.
COLLECT = """
import multiprocessing, threading
from rigging.lease.identity import acquisition_id

found = [acquisition_id() for _ in range(100)]
thread = threading.Thread(target=lambda: found.extend(acquisition_id() for _ in range(100)))
thread.start()
thread.join()
with multiprocessing.get_context("fork").Pool(4) as pool:
    found += pool.starmap(acquisition_id, [()] * 100)
print(*found, sep="\\n")
"""


@pytest.mark.process
def test_no_two_acquisitions_share_an_id() -> None:
    done = subprocess.run([sys.executable, "-c", COLLECT], capture_output=True, text=True, check=True, timeout=60)
    found = done.stdout.split()
    assert len(found) == len(set(found)) == 300
    assert all(os.uname().nodename in each for each in found), "people read these"


@pytest.mark.process
def test_a_stopped_process_is_neither_alive_nor_gone() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "from rigging.lease.identity import *\nprint(acquisition_id(), flush=True)\ninput()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    told = process.stdout.readline().strip()
    try:
        process.send_signal(signal.SIGSTOP)
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
        assert holder_state(told) is HolderState.STOPPED
    finally:
        process.kill()
        process.communicate()
    assert holder_state(told) is HolderState.GONE


def test_whose_process_lives_ended_is_another_or_gave_up(dead_id: str) -> None:
    mine = acquisition_id()
    assert holder_state(mine) is HolderState.ALIVE
    assert holder_state(dead_id) is HolderState.GONE
    assert holder_state(f"other-{dead_id}") is HolderState.UNKNOWN, "of a machine restored from the same image"
    place, _, started = mine.rsplit("-", 2)[1].partition(".")
    assert place, "this system does not tell"
    assert holder_state(mine.replace(f"{place}.{started}", f"{place}.{int(started) + 1}")) is HolderState.GONE
    for given_up, state in ((mine, HolderState.GONE), ("w", HolderState.UNKNOWN)):
        give_up(given_up)
        assert holder_state(given_up) is state, "a chosen one may be held by another"


def test_a_process_killed_and_not_yet_waited_for_is_gone() -> None:
    receive, send = os.pipe()
    if (child := os.fork()) == 0:
        os.write(send, acquisition_id().encode())
        os._exit(0)
    told = os.read(receive, 1000).decode()
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert holder_state(told) is HolderState.GONE
    os.waitpid(child, 0)
    os.close(receive)
    os.close(send)


class Hidden(ProcessTable):
    """A /proc that shows no processes of others, as some are mounted."""

    def status(self, pid: int) -> ProcessStatus | None:
        return None


def test_a_process_of_another_user_is_seen_and_one_proc_hides_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_ours(pid: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    mine = acquisition_id()
    monkeypatch.setattr(os, "kill", not_ours)
    assert holder_state(mine) is HolderState.ALIVE
    assert holder_state(mine, Hidden()) is HolderState.UNKNOWN


def test_of_chosen_ids_other_boots_machines_and_namespaces_nothing_is_known(dead_id: str, tmp_path: Path) -> None:
    place = dead_id.rsplit("-", 2)[1].partition(".")[0]
    other = dead_id.replace(place, place[:-1] + ("0" if place[-1] != "0" else "1"))
    for unknown in ("w", "", "host-1-2-3", "x-999999999-1-0123456789ab", "ray-worker-2147483647", other):
        assert holder_state(unknown) is HolderState.UNKNOWN
    # Nor where the system does not tell what it is.
    nothing = ProcessTable(str(tmp_path))
    assert holder_state(dead_id, nothing) is HolderState.UNKNOWN
    assert len(acquisition_id(nothing).split("-")) == len(dead_id.split("-")) - 1


def test_a_dead_processs_lease_is_free(dead_id: str, tmp_path: object, caplog: pytest.LogCaptureFixture) -> None:
    path = f"{tmp_path}/x.lock"
    assert create_lock(path, dead_id).try_acquire()
    heir = create_lock(path)
    assert not heir.has_active_holder()
    assert heir.try_acquire()
    assert heir.fencing_token == 2
    assert f"the process of {dead_id} has ended" in caplog.text


@pytest.mark.process
@pytest.mark.skipif(platform.machine() != "x86_64", reason="system calls have other numbers elsewhere")
def test_a_process_whose_main_thread_alone_has_ended_is_alive() -> None:
    """Its other threads may be at work: /proc shows the process as a zombie all the same."""
    program = (
        "import ctypes, threading, time\n"
        "from rigging.lease.identity import acquisition_id\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "print(acquisition_id(), flush=True)\n"
        "ctypes.CDLL(None).syscall(60, 0)\n"  # exit of this thread only
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        holder = process.stdout.readline().strip()
        stat = Path(f"/proc/{process.pid}/stat")
        eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", "the main thread has ended")
        assert holder_state(holder) is HolderState.ALIVE
        process.kill()
        eventually(lambda: holder_state(holder) is HolderState.GONE, "all threads have ended")
    finally:
        process.kill()
        process.communicate()
