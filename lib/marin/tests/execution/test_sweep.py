"""Sweeps shared out among workers."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from marin.execution.lease.status_file import StatusFile
from marin.execution.lease.status_words import STATUS_FAILED, STATUS_RUNNING, STATUS_SUCCESS
from marin.execution.sweep import SweepTarget, run_sweep
from rigging.errors import Conflict, InvalidRequest, StepFailed


def test_every_target_runs_once_whoever_asks(tmp_path: Path) -> None:
    targets = [SweepTarget(f"lr={index}", index) for index in range(10)]
    ran: list[int] = []
    done: list[str] = []
    workers = [
        threading.Thread(target=lambda: done.extend(run_sweep(str(tmp_path), targets, ran.append))) for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert sorted(ran) == list(range(10))
    assert sorted(done) == sorted(target.target_id for target in targets)
    assert run_sweep(str(tmp_path), targets, ran.append) == []


def test_a_target_that_another_works_on_is_left_to_it(tmp_path: Path) -> None:
    holder = StatusFile(str(tmp_path / "a"), "another-machine")
    assert holder.try_acquire_lock()
    ran: list[str] = []
    targets = [SweepTarget("a", "a"), SweepTarget("b", "b")]
    assert run_sweep(str(tmp_path), targets, ran.append) == ["b"]
    holder.release_lock()
    assert run_sweep(str(tmp_path), targets, ran.append) == ["a"]
    assert ran == ["b", "a"]


def test_failures_are_told_together_and_tried_again(tmp_path: Path) -> None:
    broken = {"a": ValueError("bad"), "c": SystemExit(3), "d": Conflict("its own")}

    def run(name: str) -> None:
        if name in broken:
            raise broken.pop(name)

    targets = [SweepTarget(name, name) for name in "abcd"]
    with pytest.raises(StepFailed, match=r"3 sweep target\(s\) failed:\n  a: ValueError: bad\n  c: SystemExit: 3\n"):
        run_sweep(str(tmp_path), targets, run)
    assert StatusFile(str(tmp_path / "a")).status == STATUS_FAILED
    assert StatusFile(str(tmp_path / "b")).status == STATUS_SUCCESS
    assert run_sweep(str(tmp_path), targets, run) == ["a", "c", "d"]


def test_ids_must_be_apart_and_below_the_root(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="two sweep targets have the id 'a'"):
        run_sweep(str(tmp_path), [SweepTarget("a", 1), SweepTarget("a", 2)], print)
    with pytest.raises(InvalidRequest, match=r"sweep target '\.\./a' has"):
        run_sweep(str(tmp_path), [SweepTarget("../a", 1)], print)


KILLED = """
import os, signal, sys
from marin.execution.sweep import SweepTarget, run_sweep
run_sweep(sys.argv[1], [SweepTarget("a", 1)], lambda _: os.kill(os.getpid(), signal.SIGKILL))
"""


@pytest.mark.process
def test_the_target_of_a_killed_worker_is_free_again(tmp_path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, timeout=60).returncode == -9
    assert StatusFile(str(tmp_path / "a")).status == STATUS_RUNNING
    ran: list[int] = []
    assert run_sweep(str(tmp_path), [SweepTarget("a", 1)], ran.append) == ["a"]
    assert ran == [1]
