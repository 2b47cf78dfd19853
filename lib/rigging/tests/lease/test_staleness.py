"""When a lease may be taken over: what each piece of evidence counts for."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigging.distributed_lock import SKEW_ALLOWANCE, create_lock
from rigging.lease.__main__ import main
from rigging.lease.identity import HolderState, acquisition_id
from rigging.lease.local import LocalLeaseStore
from rigging.lease.record import Lease, StoredLease, age_by
from rigging.lease.staleness import Evidence, LeaseObserver, is_stale
from support.rigging.clock import FakeClock

TIMEOUT = 90.0

HOLD = """
import sys
from rigging.distributed_lock import create_lock
lock = create_lock(sys.argv[1])
print(lock.try_acquire(), flush=True)
input()
"""


@pytest.mark.parametrize(
    ("unchanged", "timestamp_age", "storage_age"),
    [(0, 600, None), (0, 1e9, 1e9), (1e6, 1e6, 1e6), (100, -1e6, None), (0, -1000, None)],
)
def test_a_holder_here_is_stale_at_its_end(unchanged: float, timestamp_age: float, storage_age: float | None) -> None:
    for holder, stale in ((HolderState.ALIVE, False), (HolderState.STOPPED, False), (HolderState.GONE, True)):
        assert is_stale(Evidence(holder, unchanged, timestamp_age, storage_age), TIMEOUT) is stale


@pytest.mark.parametrize(
    ("unchanged", "timestamp_age", "storage_age", "stale"),
    [
        (89, 0, None, False),
        (90, -1e9, None, True),  # seen to stand still: whatever the clocks say
        (0, 600, None, False),  # a clock that is ten minutes ahead
        (0, 90 + 3600, None, False),
        (0, 91 + 3600, None, True),
        (0, 600, 600, True),  # the storage's own clock says so, too
        (0, 600, 3, False),  # it says that the lease was renewed just now
        (0, 600, 92, False),  # whole seconds, each of them rounded
        (0, 600, 93, True),
        (0, 90, 600, False),
        (0, 91, 600, True),
        (0, 3, 600, False),  # the storage's clock was set forward
    ],
)
def test_holders_elsewhere(unchanged: float, timestamp_age: float, storage_age: float | None, stale: bool) -> None:
    assert is_stale(Evidence(HolderState.UNKNOWN, unchanged, timestamp_age, storage_age), TIMEOUT) is stale


@pytest.mark.parametrize(
    ("date", "modified", "age"),
    [
        ("Sun, 22 Nov 2026 07:00:10 GMT", "Sun, 22 Nov 2026 06:58:00 GMT", 130.0),
        (None, "Sun, 22 Nov 2026 06:58:00 GMT", None),
        ("Sun, 22 Nov 2026 07:00:10 GMT", None, None),
        ("yesterday", "Sun, 22 Nov 2026 06:58:00 GMT", None),
    ],
)
def test_the_storages_own_times(date: str | None, modified: str | None, age: float | None) -> None:
    assert age_by(date, modified) == age


@pytest.mark.parametrize("between", ["it was gone", "it was ours", "it changed"])
def test_a_lease_that_comes_back_or_changes_is_watched_anew(between: str) -> None:
    """Its holder may have moved its directory away and back: it had no file to renew, and is not to blame for that."""
    clock = FakeClock()
    stored = StoredLease(Lease("elsewhere", clock.now()).to_bytes(), "1")
    observer = LeaseObserver("gs://b/x.lock", TIMEOUT, clock=clock)
    assert observer.live(stored) is not None
    clock.advance(TIMEOUT - 1)
    if between == "it was gone":
        assert observer.live(None) is None
    elif between == "it was ours":
        observer.forget()
    else:
        stored = StoredLease(Lease("elsewhere", clock.now()).to_bytes(), "2")
    for _ in range(2):
        assert observer.live(stored) is not None
        clock.advance(TIMEOUT - 1)
    clock.advance(1)
    assert observer.live(stored) is None


def test_what_the_store_holds_is_judged_at_the_first_look() -> None:
    clock = FakeClock()
    content = Lease("elsewhere", clock.now() - 200).to_bytes()
    for stored, is_live in (
        (StoredLease(content, "1", age_seconds=200), False),  # the storage's own clock says so, too
        (StoredLease(content, "1", age_seconds=20), True),
        (StoredLease(b"{", "9"), False),
    ):
        observer = LeaseObserver("gs://b/x.lock", TIMEOUT, clock=clock)
        assert (observer.live(stored) is not None) is is_live


def test_who_had_the_lease_here_a_moment_ago_is_likely_back() -> None:
    clock = FakeClock()
    mine, other = acquisition_id(), "elsewhere"
    observer = LeaseObserver("x.lock", TIMEOUT, clock=clock)
    assert not observer.is_likely_back(5.0)
    assert observer.live(StoredLease(Lease(mine, clock.now()).to_bytes(), "1")) is not None
    clock.advance(4.0)
    assert observer.is_likely_back(5.0)
    clock.advance(1.0)
    assert not observer.is_likely_back(5.0)
    assert observer.live(StoredLease(Lease(other, clock.now()).to_bytes(), "2")) is not None
    assert not observer.is_likely_back(5.0), "of another machine nothing is known"


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    path = str(tmp_path / "x.lock")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "True\n"
    holder.send_signal(signal.SIGSTOP)
    os.waitpid(holder.pid, os.WUNTRACED)
    yield path, holder
    holder.kill()
    holder.communicate()


@pytest.mark.process
def test_a_stopped_holder_is_named_and_keeps_its_lease_until_a_person_decides(
    stopped: tuple[str, subprocess.Popen[str]], clock: FakeClock, caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path, holder = stopped
    clock.step_wall(time.time() + 2 * SKEW_ALLOWANCE - clock.now())
    other = create_lock(path, clock=clock)
    for _ in range(5):
        assert not other.try_acquire()
        clock.advance(100)
    [message] = [record.message for record in caplog.records]
    for words in (f"process {holder.pid} ", "is stopped", f"kill -CONT {holder.pid}", f"-m rigging.lease take {path}"):
        assert words in message
    assert main(["show", path]) == 0
    assert "which is stopped" in capsys.readouterr().out
    assert main(["take", path]) == 0
    assert other.try_acquire()


def test_taken_by_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    mine, elsewhere = create_lock(tmp_path / "mine.lock"), tmp_path / "elsewhere.lock"
    assert mine.try_acquire()
    elsewhere.write_text(json.dumps({"worker_id": "elsewhere", "timestamp": time.time()}))
    for path in (mine.location, str(elsewhere)):
        before = Path(path).read_bytes()
        assert main(["take", path]) == 3
        assert "--force" in capsys.readouterr().err
        assert Path(path).read_bytes() == before
        with monkeypatch.context() as patch:
            patch.setattr(LocalLeaseStore, "delete", lambda self, stored: False)
            assert main(["take", path, "--force"]) == 3
        assert "it changed meanwhile: its holder is running" in capsys.readouterr().err
        assert main(["take", path, "--force"]) == 0
        assert main(["show", path]) == 0
        assert "nobody holds it" in capsys.readouterr().out
    assert main(["show", "gs://only-a-bucket"]) == 3


def test_what_cannot_be_read_may_be_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.lock"
    path.write_text("{")
    assert main(["show", str(path)]) == 0
    assert "its lock file is unreadable, so anybody may take it" in capsys.readouterr().out
    assert main(["take", str(path)]) == 0
    assert not path.exists()
    assert main(["take", str(tmp_path / "none/x.lock")]) == 0
    assert "nobody holds it" in capsys.readouterr().out


def test_a_holder_that_hangs_is_named(tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    assert create_lock(tmp_path / "x.lock").try_acquire()
    other = create_lock(tmp_path / "x.lock", clock=clock)
    assert not other.try_acquire()
    assert not caplog.records
    clock.advance(TIMEOUT)
    assert not other.try_acquire()
    assert f"process {os.getpid()} of this machine, which runs, but has not renewed it for 90 s" in caplog.text


def test_where_every_write_is_fenced_a_hung_process_may_be_replaced(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "x.lock"
    assert create_lock(path, must_renew=True).try_acquire()
    clock.step_wall(time.time() - clock.now())
    other = create_lock(path, must_renew=True, clock=clock)
    assert not other.try_acquire()
    clock.advance(TIMEOUT)
    assert other.try_acquire()
