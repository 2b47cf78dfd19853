import dataclasses
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fray.current_client import set_current_client
from fray.errors import JobFailed
from fray.local_backend import LocalClient
from fray.types import JobStatus
from marin.execution import resolve_executor_step, step_lease, versioned
from marin.execution.jobs.placement import tries_of
from marin.execution.jobs.remote import remote
from marin.execution.lease.status_file import StatusFile
from marin.execution.lease.status_words import STATUS_FAILED, STATUS_RUNNING, STATUS_SUCCESS
from marin.execution.lease.step_lease import LeaseTerms
from marin.execution.report.events import StepEnd, StepRetrying, StepStarted, StepTimedOut
from marin.execution.run.interruption import EndingTerms, ExitLeases
from marin.execution.run.limited_call import LimitedCall
from marin.execution.run.outcomes import outcome_of
from marin.execution.run.step_runner import StepRunner, run_step
from marin.execution.run.step_task import StepResult, StepTask
from marin.execution.run.trying import Outcome
from marin.execution.step_spec import StepSpec
from rigging.distributed_lock import LeaseLostError
from rigging.errors import InvalidRequest, StepFailed
from support.marin.recorder import Recorder
from support.marin.steps import MakeExecutor, MakeStep


class Flaky:
    """A function that fails so many times, and refuses to run beside itself."""

    def __init__(self, failures: int) -> None:
        self.calls = 0
        self.failures = failures
        self.alone = threading.Lock()

    def __call__(self, _config: Any) -> int:
        assert self.alone.acquire(blocking=False), "beside its former attempt"
        try:
            self.calls += 1
            if self.calls <= self.failures:
                raise ValueError(f"call {self.calls}")
            return self.calls
        finally:
            self.alone.release()


@pytest.mark.parametrize("as_job", [False, True])
def test_failures_are_made_good(make_step: MakeStep, make_executor: MakeExecutor, as_job: bool) -> None:
    fn, events = Flaky(2), Recorder()
    executor = make_executor()
    executor.observers = [events]
    step = make_step("a", fn=remote(fn) if as_job else fn, retries=2, retry_delay=0.1)
    after, began = make_step("b", step), time.monotonic()
    executor.run([after])
    assert fn.calls == 3
    assert time.monotonic() - began >= 0.2
    assert StatusFile(executor.output_paths[step]).status == STATUS_SUCCESS
    told = events.of(StepRetrying)
    assert [(event.attempt, event.outcome, event.delay) for event in told] == [(1, "failed", 0.1), (2, "failed", 0.1)]
    assert "call 1" in told[0].error
    started = [event.name for event in events.of(StepStarted)]
    assert started == ["a", "a", "a", "b"] or as_job, "a short job may end before it is seen to run"
    assert started[-1] == "b"
    assert events.ends() == dict.fromkeys("ab", StepEnd.SUCCEEDED)


def test_the_last_failure_is_the_steps(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    fn, executor = Flaky(9), make_executor()
    with pytest.raises(StepFailed, match="call 2"):
        executor.run([make_step("a", fn=fn, retries=1)], force_run_failed=False)
    assert fn.calls == 2


def test_specs_are_tried_again_too(prefix: str) -> None:
    fn = Flaky(2)
    spec = StepSpec(name="a", output_path_prefix=prefix, fn=fn, retries=1)
    with pytest.raises(StepFailed):
        StepRunner().run([spec])
    assert run_step(spec)
    again = Flaky(1)
    assert run_step(StepSpec(name="b", output_path_prefix=prefix, fn=again, retries=1))
    assert again.calls == 2


def test_numbers_are_no_part_of_a_version(make_step: MakeStep, make_executor: MakeExecutor, prefix: str) -> None:
    more = {"retries": 3, "retry_delay": 1.0, "timeout": 5.0}
    plain, tried = make_step("a", versioned(1)), make_step("a", versioned(1), **more)
    executor, other = make_executor(), make_executor()
    executor.compute_version(plain)
    other.compute_version(tried)
    assert executor.output_paths[plain] == other.output_paths[tried]
    assert executor.versions[plain] == other.versions[tried]
    spec = StepSpec(name="a", output_path_prefix=prefix, fn=repr)
    assert dataclasses.replace(spec, **more).output_path == spec.output_path


def test_what_a_step_says_is_stronger_than_what_its_function_says(make_step: MakeStep) -> None:
    fn = remote(repr, retries=3, timeout=60)
    tries = tries_of(make_step("a", fn=fn, retries=0, retry_delay=2))
    assert (tries.retries, tries.retry_delay, tries.timeout) == (0, 2, 60)
    spec = resolve_executor_step(make_step("a", fn=repr, retries=4), None, "/p/a")
    assert spec.retries == 4
    bare = StepSpec(name="x", fn=repr, retries=2, timeout=3.0).as_executor_step()
    assert (bare.retries, bare.timeout) == (2, 3.0)
    with pytest.raises(InvalidRequest, match="retries=-1"):
        remote(repr, retries=-1)


def test_a_function_that_heeds_its_lease_ends_at_its_timeout(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    calls: list[int] = []

    def work(_config: Any) -> None:
        calls.append(1)
        assert step_lease().lost_event.wait(20)

    executor, events = make_executor(), Recorder()
    executor.observers = [events]
    step = make_step("a", fn=work, timeout=0.05, retries=1)
    with pytest.raises(StepFailed, match=r"timeout of 0\.05 s"):
        executor.run([step])
    assert len(calls) == 2
    assert [event.outcome for event in events.of(StepRetrying)] == ["timed out"]
    assert StatusFile(executor.output_paths[step]).status == STATUS_FAILED
    assert not Path(executor.output_paths[step], ".executor_status.lock").exists()


@pytest.mark.process
def test_a_function_that_awaits_a_process_ends_at_its_timeout(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    def work(_config: Any) -> None:
        subprocess.run(["sleep", "600"], check=True)

    executor = make_executor()
    step = make_step("a", fn=work, timeout=0.5)
    with pytest.raises(StepFailed, match=r"timeout of 0\.5 s"):
        executor.run([step])
    told = Path(executor.output_paths[step], ".error").read_text()
    assert 'subprocess.run(["sleep", "600"], check=True)' in told.partition("At its timeout the function was here:")[2]


def test_a_function_that_goes_on_keeps_its_lease_and_is_not_tried_again(tmp_path: Path) -> None:
    from marin.execution.lease.opening import open_step_lease

    go_on, exits, ended = threading.Event(), ExitLeases(lambda _: None), threading.Event()
    lease = open_step_lease(str(tmp_path / "a"), "a")
    assert lease.begin(force_run_failed=True)
    call = LimitedCall(lambda: go_on.wait(20), lease, 0.05, EndingTerms(0.01, 0.05), exits)
    with pytest.raises(StepTimedOut, match="cannot be stopped") as raised:
        call.run(lambda _: None)
    assert raised.value.still_runs
    assert lease.held
    assert StatusFile(str(tmp_path / "a")).status == STATUS_RUNNING
    assert not open_step_lease(str(tmp_path / "a"), "a").begin(force_run_failed=True), "nobody else gets it"
    call.when_ended(ended.set)
    assert not ended.is_set()
    go_on.set()
    assert ended.wait(20)
    lease.end(STATUS_FAILED)
    assert StatusFile(str(tmp_path / "a")).status == STATUS_FAILED


def test_a_job_is_stopped_at_its_timeout_and_waited_for(
    make_step: MakeStep, make_executor: MakeExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    at_work, beside, calls = threading.Lock(), threading.Event(), list[float]()

    def work(_config: Any) -> None:
        if not at_work.acquire(blocking=False):
            beside.set()
        calls.append(1)
        # An in-process job goes on when it is stopped: so the next attempt must wait for it.
        threading.Event().wait(0.8)
        at_work.release()

    executor = make_executor()
    with set_current_client(LocalClient()), pytest.raises(StepFailed, match=r"timeout of 0\.05 s"):
        executor.run([make_step("a", fn=remote(work, timeout=0.05), retries=1)])
    assert len(calls) == 2
    assert not beside.is_set()
    assert "marin/execution" not in caplog.messages[-1].partition("step a failed: StepTimedOut")[2], "frames of ours"


def test_outcomes_are_told_apart(tmp_path: Path) -> None:
    task = StepTask("a", str(tmp_path), frozenset(), lambda: None)

    def outcome(error: BaseException, end: StepEnd = StepEnd.FAILED) -> Outcome:
        return outcome_of(StepResult(task, end, error=error))

    assert outcome(ValueError()) is Outcome.FAILED
    assert outcome(JobFailed("j", job_id="j")) is Outcome.FAILED
    assert outcome(JobFailed("j", job_id="j", was_preempted=True)) is Outcome.PREEMPTED
    assert outcome(JobFailed("j", JobStatus.STOPPED, job_id="j")) is Outcome.STOPPED
    assert outcome(StepTimedOut("t")) is Outcome.TIMED_OUT
    assert outcome(LeaseLostError("l"), StepEnd.LOST) is Outcome.LOST


def test_a_step_that_lost_its_lease_waits_for_its_new_holder(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    fn_calls, executor = [0], make_executor()
    executor.lease_terms = LeaseTerms(renew_seconds=0.05, timeout_seconds=0.5)

    def work(_config: Any) -> None:
        fn_calls[0] += 1
        if fn_calls[0] == 1:
            lock = Path(step_lease().output_path, ".executor_status.lock")
            lock.write_text('{"worker_id": "another", "timestamp": 1.0}')
            assert step_lease().lost_event.wait(20)

    step = make_step("a", fn=work, retries=1)
    executor.run([step])
    assert fn_calls == [2]
    assert StatusFile(executor.output_paths[step]).status == STATUS_SUCCESS
