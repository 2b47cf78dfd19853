"""Several processes run one pipeline on one prefix, and some of them are killed: each step is made by one at a time."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("crowd_pipeline.py")


@dataclass(frozen=True)
class Attempt:
    process: int
    begin: int
    end: int
    completed: bool


def run_crowd(prefix: Path, processes: int, steps: int, kills: int, seed: int) -> tuple[dict[int, int], list[int]]:
    """Run the pipelines, killing one after the other once the work is under way.

    Returns:
        When each killed process was dead for sure (monotonic, ns), by process id; the exit codes of the others.
    """
    dice = random.Random(seed)
    (prefix / "journal").mkdir(parents=True)
    crowd = [
        subprocess.Popen([sys.executable, str(SCRIPT), str(prefix), str(steps), str(number)])
        for number in range(processes)
    ]
    killed: dict[int, int] = {}
    try:
        victims = dice.sample(crowd, kills)
        marks = sorted(dice.sample(range(1, steps), kills))
        while victims and any(process.poll() is None for process in crowd):
            if len(list((prefix / "journal").iterdir())) < marks[0]:
                time.sleep(0.002)
                continue
            marks.pop(0)
            victim = victims.pop()
            if victim.poll() is None:
                os.kill(victim.pid, signal.SIGKILL)
                victim.wait()
                killed[victim.pid] = time.monotonic_ns()
        return killed, [process.wait(timeout=240) for process in crowd if process.pid not in killed]
    finally:
        for process in crowd:
            if process.poll() is None:
                process.kill()
                process.wait()


def attempts_at(journal: Path, killed: dict[int, int]) -> list[Attempt]:
    begins: dict[str, tuple[int, int]] = {}
    ends: dict[str, int] = {}
    for line in journal.read_text().splitlines():
        what, process, attempt, when = line.split()
        if what == "begin":
            begins[attempt] = (int(process), int(when))
        else:
            ends[attempt] = int(when)
    return [
        Attempt(process, begin, ends[attempt] if attempt in ends else killed[process], attempt in ends)
        for attempt, (process, begin) in begins.items()
    ]


def check(prefix: Path, steps: int, killed: dict[int, int]) -> int:
    """Check every step's journal and output; returns how many attempts were cut off by a kill."""
    cut_off = 0
    for number in range(steps):
        attempts = sorted(attempts_at(prefix / "journal" / f"s{number}", killed), key=lambda attempt: attempt.begin)
        for one, next_one in itertools.pairwise(attempts):
            # When a killed process died is known only to be before its parent saw it; for those the step's lock speaks.
            assert one.process in killed or one.end <= next_one.begin, f"two attempts at step {number} at once"
            assert one.process in killed, f"step {number} ran again although it had succeeded"
        assert attempts[-1].completed
        cut_off += sum(not attempt.completed for attempt in attempts)
        [output] = (prefix / "crowd").glob(f"s{number}-*")
        assert (output / ".executor_status").read_text() == "SUCCESS"
        # One that was killed after its success may have left the lock, which keeps nobody from what is done.
        assert not (output / ".executor_status.lock").exists() or attempts[-1].process in killed
    return cut_off


@pytest.mark.e2e
def test_each_step_is_made_by_one_at_a_time(tmp_path: Path) -> None:
    killed, codes = run_crowd(tmp_path, processes=4, steps=40, kills=2, seed=1)
    assert codes == [0] * (4 - len(killed))
    check(tmp_path, 40, killed)


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(5))
def test_eight_pipelines_share_a_hundred_steps(tmp_path: Path, seed: int) -> None:
    killed, codes = run_crowd(tmp_path, processes=8, steps=100, kills=5, seed=seed)
    assert codes == [0] * (8 - len(killed))
    check(tmp_path, 100, killed)
