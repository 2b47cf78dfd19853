"""Leases in a run: who may take them over and when, and what a step that lost its lease may still do."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marin.execution import Executor, ExecutorStep
from marin.execution.lease.keeper import LeaseKeeper
from marin.execution.lease.opening import open_step_lease
from marin.execution.lease.status_file import StatusFile
from marin.execution.lease.status_words import STATUS_FAILED, STATUS_RUNNING, STATUS_SUCCESS
from marin.execution.lease.step_lease import LeaseTerms, StepLease, step_lease
from marin.execution.report.events import RunEvent, StepEnd, StepEnded
from marin.execution.run.plan_source import run_tasks
from marin.execution.run.step_task import StepTask
from rigging.distributed_lock import LeaseLostError
from rigging.errors import InvalidRequest, StepFailed
from rigging.testing import eventually

MakeStep = Callable[..., ExecutorStep[Any]]
MakeExecutor = Callable[[], Executor]

SHORT = LeaseTerms(renew_seconds=0.02, timeout_seconds=0.3)


def steal(path: str) -> None:
    """Put a living lease of another machine in the place of whoever holds it."""
    Path(path, ".executor_status.lock").write_text(json.dumps({"worker_id": "thief", "timestamp": time.time()}))


class Counted(StepLease):
    """In no storage; counts how often it is renewed."""

    renewals = 0
    free = False

    def is_free(self) -> bool:
        return self.free

    def _begin(self, *_: object) -> bool:
        return True

    def _write(self, *_: object) -> None: ...

    def _leave(self, *_: object) -> None: ...

    def _end(self, *_: object) -> bool:
        return True

    def _renew(self, *_: object) -> bool:
        self.renewals += 1
        return True


class Events:
    def __init__(self) -> None:
        self.seen: list[RunEvent] = []

    def on_event(self, event: RunEvent) -> None:
        self.seen.append(event)


def test_a_function_is_told_that_its_lease_is_lost(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    told = []
    executor, events = make_executor(), Events()
    executor.lease_terms = SHORT
    executor.observers = [events]

    def work(_: Any) -> None:
        lease = step_lease()
        assert not lease.lost
        lease.check()
        steal(lease.output_path)
        told.append(lease.lost_event.wait(20))
        with pytest.raises(LeaseLostError, match=r"step a: its lease on .* was lost"):
            lease.check()

    with pytest.raises(StepFailed, match="LeaseLostError"):
        executor.run([make_step("a", fn=work)])
    assert told == [True]
    [path] = executor.output_paths.values()
    assert StatusFile(path).status == STATUS_RUNNING  # what the thief found there; it speaks for this output now
    assert executor.results[0].end is StepEnd.LOST
    assert [event.status for event in events.seen if isinstance(event, StepEnded)] == [StepEnd.LOST]


def test_outside_of_a_run_no_lease_is_ever_lost() -> None:
    assert not step_lease().lost
    step_lease().check()


def test_what_runs_elsewhere_is_stopped_when_the_lease_is_lost(tmp_path: Path) -> None:
    stopped = threading.Event()

    def work() -> None:
        steal(str(tmp_path))
        assert stopped.wait(20)
        raise RuntimeError("the job was terminated")

    task = StepTask("a", str(tmp_path), frozenset(), work, stop=stopped.set)
    [result] = run_tasks([task], {}, terms=SHORT)
    assert result.end is StepEnd.LOST
    assert isinstance(result.error, LeaseLostError)
    assert "terminated" in str(result.error.__cause__)


def test_a_lease_that_nobody_renews_is_taken_over_after_its_time(tmp_path: Path) -> None:
    """As after a kill -9 on another machine: the lease file stands still, and that is all there is to see."""
    steal(str(tmp_path))
    StatusFile(str(tmp_path)).write_status(STATUS_RUNNING)
    ran = []
    task = StepTask("a", str(tmp_path), frozenset(), lambda: ran.append(time.monotonic()))
    started = time.monotonic()
    [result] = run_tasks([task], {str(tmp_path): STATUS_RUNNING}, terms=SHORT)
    assert result.end is StepEnd.SUCCEEDED
    assert ran[0] - started >= SHORT.timeout_seconds
    assert StatusFile(str(tmp_path)).status == STATUS_SUCCESS


def test_a_lease_that_is_renewed_is_waited_for(tmp_path: Path) -> None:
    other = open_step_lease(str(tmp_path), "other", SHORT)
    assert other.begin(force_run_failed=True)
    began, keeper, lock = time.monotonic(), LeaseKeeper(SHORT), tmp_path / ".executor_status.lock"
    keeper.keep(other, lambda: None)

    def finish() -> None:
        # Until it has been renewed for far longer than an unrenewed lease would have lasted.
        seen = {json.loads(lock.read_bytes())["timestamp"]}
        while len(seen) < 10 or time.monotonic() - began < 3 * SHORT.timeout_seconds:
            seen.add(json.loads(lock.read_bytes())["timestamp"])
        other.end(STATUS_SUCCESS)

    finisher = threading.Thread(target=finish)
    finisher.start()
    task = StepTask("a", str(tmp_path), frozenset(), lambda: pytest.fail("ran"))
    [result] = run_tasks([task], {}, terms=SHORT)
    finisher.join()
    keeper.stop()
    assert result.end is StepEnd.CACHED


def test_waiting_for_another_run_takes_no_place(tmp_path: Path) -> None:
    """With one place, a step whose output another run is making does not keep this run from its other steps."""
    other = open_step_lease(str(tmp_path / "shared"), "other")
    assert other.begin(force_run_failed=True)
    tasks = [
        StepTask("shared", str(tmp_path / "shared"), frozenset(), lambda: pytest.fail("ran")),
        StepTask("own", str(tmp_path / "own"), frozenset(), lambda: other.end(STATUS_SUCCESS)),
    ]
    results = run_tasks(tasks, {}, max_concurrent=1)
    assert [result.end for result in results] == [StepEnd.CACHED, StepEnd.SUCCEEDED]


def test_a_lease_that_cannot_be_renewed_counts_as_lost_in_time() -> None:
    class Unreachable(Counted):
        free = True

        def _renew(self, *_: object) -> bool:
            raise OSError("no route to storage")

    lease = Unreachable("/p", "a", SHORT)
    lease.begin(force_run_failed=True)
    lost = threading.Event()
    keeper = LeaseKeeper(SHORT)
    started = time.monotonic()
    keeper.keep(lease, lost.set)
    assert lost.wait(20)
    assert time.monotonic() - started >= SHORT.timeout_seconds
    assert lease.lost
    with pytest.raises(LeaseLostError):
        lease.end(STATUS_SUCCESS)
    keeper.stop()


def test_a_step_that_got_its_lease_as_the_run_stopped_keeps_it_while_it_works() -> None:
    """Its function may be on its way out for minutes; a lease that stands still would let another run begin beside."""
    keeper = LeaseKeeper(SHORT)
    for _ in range(2):  # whether the keeper's thread never was, or has ended
        keeper.stop()
        lease = Counted("/p", "a", SHORT)
        assert lease.begin(force_run_failed=True)
        keeper.keep(lease, lambda: pytest.fail("lost"))
        eventually(lambda lease=lease: lease.renewals >= 2, "it is renewed")
        keeper.drop(lease)


def test_after_the_stop_nobody_is_told_of_others_leases() -> None:
    """The run has ended: a step that became free would be made by nobody."""
    keeper = LeaseKeeper(SHORT)
    kept, watched = Counted("/p", "a", SHORT), Counted("/q", "b", SHORT)
    assert kept.begin(force_run_failed=True)
    keeper.keep(kept, lambda: pytest.fail("lost"))
    told: list[str] = []
    keeper.watch(watched, lambda: told.append("free"))
    keeper.stop()
    watched.free = True
    before = kept.renewals
    eventually(lambda: kept.renewals >= before + 5, "the keeper goes on round for what is kept")
    keeper.drop(kept)
    assert not told


def test_an_attempt_that_was_given_up_writes_nothing_more(tmp_path: Path) -> None:
    lease = open_step_lease(str(tmp_path), "a")
    assert lease.begin(force_run_failed=True)
    lease.leave()
    assert StatusFile(str(tmp_path)).status == STATUS_FAILED
    with pytest.raises(LeaseLostError):
        lease.end(STATUS_SUCCESS)
    assert StatusFile(str(tmp_path)).status == STATUS_FAILED


def test_a_late_owner_neither_renews_nor_removes_its_successors_lease(tmp_path: Path) -> None:
    late = open_step_lease(str(tmp_path), "a")
    assert late.begin(force_run_failed=True)
    steal(str(tmp_path))
    stolen = (tmp_path / ".executor_status.lock").read_bytes()
    with pytest.raises(LeaseLostError):
        late.renew()
    assert late.lost
    with pytest.raises(LeaseLostError):
        late.end(STATUS_SUCCESS)
    late.leave()
    assert (tmp_path / ".executor_status.lock").read_bytes() == stolen
    assert StatusFile(str(tmp_path)).status == STATUS_RUNNING


def test_forked_processes_are_holders_of_their_own(tmp_path: Path) -> None:
    """The children share the parent's host, thread number and random state, and only one of them has the lease."""
    lease = open_step_lease(str(tmp_path), "inherited")
    go_on, say_go_on = os.pipe()
    told, tell = os.pipe()
    children = []
    for _ in range(6):
        child = os.fork()
        if child == 0:
            answer = b"!"
            try:
                answer = b"+" if lease.begin(force_run_failed=True) else b"-"
            finally:
                os.write(tell, answer)
                os.close(say_go_on)
                os.read(go_on, 1)  # until all have tried: the lease of a process that has ended is free
                os._exit(0)
        children.append(child)
    answers = b""
    while len(answers) < len(children):
        answers += os.read(told, len(children))
    os.close(say_go_on)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children)
    for descriptor in (go_on, told, tell):
        os.close(descriptor)
    assert sorted(answers.decode()) == ["+", "-", "-", "-", "-", "-"]


@pytest.mark.parametrize("skew", [-250.0, 250.0])
def test_clocks_of_other_machines_are_not_believed(tmp_path: Path, skew: float) -> None:
    """Whether a lease is renewed is seen by its changing, not by comparing its time with the time here."""
    lock = tmp_path / ".executor_status.lock"

    def renew_elsewhere() -> None:
        lock.write_text(json.dumps({"worker_id": "elsewhere", "timestamp": time.time() + skew}))

    renew_elsewhere()
    here = open_step_lease(str(tmp_path), "a", SHORT)
    began = time.monotonic()
    while time.monotonic() - began < 2 * SHORT.timeout_seconds:
        assert not here.begin(force_run_failed=True)
        renew_elsewhere()
    stands_still_since = time.monotonic()
    while not here.begin(force_run_failed=True):
        assert time.monotonic() - stands_still_since < 20
    assert time.monotonic() - stands_still_since >= SHORT.timeout_seconds / 2
    here.end(STATUS_SUCCESS)


@pytest.mark.parametrize("scheme", ["", "memory://keeping"])
def test_leases_and_statuses_on_any_filesystem(tmp_path: Path, scheme: str) -> None:
    path = f"{scheme}{tmp_path}/out"
    for end in (STATUS_FAILED, STATUS_SUCCESS):
        first, second = (open_step_lease(path, name) for name in ("first", "second"))
        assert first.begin(force_run_failed=True)
        assert StatusFile(path).status == STATUS_RUNNING
        assert not second.begin(force_run_failed=True)
        assert not second.is_free()
        first.renew()
        first.end(end)
        assert second.is_free()
        assert StatusFile(path).status == end


def test_a_status_of_the_older_form_is_replaced(tmp_path: Path) -> None:
    Path(tmp_path, ".executor_status").write_text('{"status": "RUNNING"}\n{"status": "FAILED"}\n')
    lease = open_step_lease(str(tmp_path), "a")
    assert lease.begin(force_run_failed=True)
    lease.end(STATUS_SUCCESS)
    assert Path(tmp_path, ".executor_status").read_text() == "SUCCESS"


@pytest.mark.parametrize("terms", [(0, 1), (1, 1), (2, 1)])
def test_impossible_terms_are_refused(terms: tuple[float, float]) -> None:
    with pytest.raises(InvalidRequest, match="must be above 0 and below timeout_seconds"):
        LeaseTerms(*terms)
