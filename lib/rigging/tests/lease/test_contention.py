"""Leases under fire from several processes: no overlap, no fencing number twice."""

import importlib
import itertools
import multiprocessing
import os
import random
import signal
from collections import Counter
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from fray.testing.waiting import eventually
from rigging.distributed_lock import LeaseLostError, create_lock
from support.rigging.contention import Contest, compete, taken
from support.rigging.faults import Fault, FaultKind
from support.rigging.serving import TestServer

pytestmark = pytest.mark.process

LOCAL, GCS, S3 = "local", "gcs", "s3"
#: Far more than a critical section takes on a busy machine.
GENEROUS_SECONDS = 6.0
SKEW = 140.0


@pytest.fixture(params=[LOCAL, GCS, S3])
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(store: str, request: pytest.FixtureRequest) -> TestServer | None:
    if store == LOCAL:
        return None
    # Imported once here, not once in each forked process.
    importlib.import_module({GCS: "gcsfs", S3: "botocore.session"}[store])
    return request.getfixturevalue(f"{store}_server")


@pytest.fixture
def root(store: str, server: TestServer | None, tmp_path: Path) -> str:
    (tmp_path / "work").mkdir()
    return {
        LOCAL: str(tmp_path),
        GCS: f"gs://marin-us-central2/{tmp_path.name}",
        S3: f"s3://marin-s3-one/{tmp_path.name}",
    }[store]


@pytest.fixture
def contest(store: str, root: str, tmp_path: Path) -> Contest:
    # About what one acquisition takes, so that those who wait do not keep the server busy.
    pause = {LOCAL: 0.0005, GCS: 0.05, S3: 0.2}[store]
    return Contest(f"{root}/x.lock", str(tmp_path / "work"), acquisitions=0, pause_seconds=pause)


class Crowd:
    """Contending processes, each replaced by another when it is killed."""

    def __init__(self, contest: Contest, method: str, size: int) -> None:
        self._contest = contest
        self._context: Any = multiprocessing.get_context(method)
        self._seeds = itertools.count()
        self.processes = [self._start() for _ in range(size)]

    def _start(self) -> BaseProcess:
        process: BaseProcess = self._context.Process(target=compete, args=(self._contest, next(self._seeds)))
        process.start()
        return process

    def kill_and_replace(self, index: int) -> None:
        process = self.processes[index]
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
            process.join()
        if process.exitcode == -signal.SIGKILL:
            self.processes[index] = self._start()

    def finish(self) -> None:
        for process in self.processes:
            process.join()
        assert [process.exitcode for process in self.processes] == [0] * len(self.processes)


def mistakes(contest: Contest) -> list[str]:
    numbers = contest.numbers()
    found = [f"{after} after {before}" for before, after in itertools.pairwise(numbers) if before >= after]
    every = Counter(numbers + contest.abandoned_numbers())
    found += [f"{number} was given {times} times" for number, times in every.items() if times > 1]
    if len(numbers) < contest.acquisitions:
        found.append(f"{len(numbers)} of {contest.acquisitions} acquisitions")
    return found


def run_hostile(contest: Contest, server: TestServer | None, method: str, processes: int, kills: int) -> list[str]:
    """The mistakes under skewed clocks, leases left by the dead, storage faults, and kills at random moments."""
    contest = replace(contest, skew=SKEW, abandoned_share=0.05, heartbeat_timeout=GENEROUS_SECONDS)
    if server is not None:
        for kind in (FaultKind.ERROR, FaultKind.DROP, FaultKind.APPLIED_ERROR, FaultKind.APPLIED_DROP):
            server.inject(Fault(kind, match=r"x\.lock", probability=0.02))
        server.inject(Fault(FaultKind.ERROR, match=r"x\.lock", status=429, probability=0.02))
        server.inject(Fault(FaultKind.LATENCY, match=r"x\.lock", seconds=0.02, probability=0.1))
    dice = random.Random(7)
    crowd = Crowd(contest, method, processes)
    # Spread over the contest by its progress, not by time. What the victim is at by then is left to chance.
    for moment in sorted(dice.sample(range(contest.acquisitions), kills)):
        words = f"the lease was acquired {moment} times"
        eventually(lambda moment=moment: len(contest.numbers()) >= moment, words, 1000)
        crowd.kill_and_replace(dice.randrange(processes))
    crowd.finish()
    return mistakes(contest)


# Spawned processes import the stores' clients anew, which takes longer than the contest: those are in the soak tier.
@pytest.mark.parametrize(
    ("store", "method"), [(LOCAL, "fork"), (LOCAL, "spawn"), (GCS, "fork"), (S3, "fork")], indirect=["store"]
)
def test_skew_crashes_kills_and_faults_let_no_two(
    contest: Contest, server: TestServer | None, store: str, method: str
) -> None:
    local = store == LOCAL
    contest = replace(contest, acquisitions=400 if local else 24)
    assert run_hostile(contest, server, method, 4, kills=4 if local else 0) == []


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_5000_takings_by_8_processes(contest: Contest, server: TestServer | None, method: str) -> None:
    assert run_hostile(replace(contest, acquisitions=5000), server, method, 8, kills=20) == []


def test_a_forked_child_has_no_share_in_its_parents_lease(root: str) -> None:
    lock = taken(create_lock(f"{root}/x.lock"))

    def child() -> None:
        assert not lock.try_acquire()
        assert not lock.release()
        with pytest.raises(LeaseLostError):
            lock.refresh()

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    assert process.exitcode == 0
    lock.refresh()
    assert lock.release()
