"""A job's life keeps its promises, whatever happens in whatever order."""

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fray.backends.common import job_life
from fray.backends.common.job_life import (
    SUCCESS,
    AttemptEnd,
    AttemptEnded,
    AttemptStatus,
    Begin,
    Broken,
    Event,
    Instruction,
    Job,
    JobRules,
    ReplicaEnded,
    Review,
    Seen,
    StartAttempt,
    StopAsked,
    StopAttempt,
    TellRetry,
    advance,
)
from fray.types import JobStatus

FAILURE = AttemptEnd(AttemptStatus.FAILED, "it failed")
PREEMPTION = AttemptEnd(AttemptStatus.PREEMPTED, "its node is gone")
STOPPED = AttemptEnd(AttemptStatus.STOPPED, "it was stopped")
TOLD_SUCCESS = AttemptEnd(AttemptStatus.SUCCEEDED, detail="its output")
ENDS = st.sampled_from([SUCCESS, TOLD_SUCCESS, FAILURE, PREEMPTION, STOPPED])


class Life(RuleBasedStateMachine):
    """A backend that carries out what it is told, and reports it in any order."""

    @initialize(
        replicas=st.integers(1, 3),
        failures=st.integers(0, 2),
        preemptions=st.integers(0, 2),
        interruptible=st.booleans(),
        reviewed=st.booleans(),
        running=st.booleans(),
    )
    def begin(
        self, replicas: int, failures: int, preemptions: int, interruptible: bool, reviewed: bool, running: bool
    ) -> None:
        self.rules = JobRules(replicas, failures, preemptions, interruptible, reviewed)
        self.job = Job(self.rules)
        self.running = running
        self.live: set[int] = set()
        self.ends: list[AttemptEnd] = []
        self.began: list[int] = []
        self.to_review: int | None = None
        self.told_ends = 0
        self.stop_asked = False
        self.stopped: list[float | None] = []

    @rule()
    def starts(self) -> None:
        self.happen(Begin(self.running))

    @rule()
    def is_seen(self) -> None:
        self.happen(Seen())

    @precondition(lambda self: self.live)
    @rule(data=st.data(), end=ENDS)
    def a_replica_ends(self, data: st.DataObject, end: AttemptEnd) -> None:
        replica = data.draw(st.sampled_from(sorted(self.live)))
        self.live.discard(replica)
        self.ends.append(end)
        self.happen(ReplicaEnded(self.job.attempt, replica, end))

    @precondition(lambda self: self.job.attempt)
    @rule(data=st.data(), end=ENDS)
    def an_end_is_told_again_or_late(self, data: st.DataObject, end: AttemptEnd) -> None:
        before = self.job
        over = sorted(set(range(self.rules.replicas)) - self.live)
        late = data.draw(st.booleans()) or not over or self.job.end is not None
        attempt = self.job.attempt - 1 if late else self.job.attempt
        replica = 0 if late else data.draw(st.sampled_from(over))
        self.happen(ReplicaEnded(attempt, replica, end))
        assert self.job == before

    @precondition(lambda self: self.to_review is not None)
    @rule(preempted=st.booleans())
    def a_review_ends(self, preempted: bool) -> None:
        """Also while replicas go on, which have had their time to end."""
        attempt, self.to_review = self.to_review, None
        assert attempt == self.job.attempt
        end = job_life.verdict(self.job)
        if end.status is not AttemptStatus.SUCCEEDED:
            end = PREEMPTION if preempted else end
        self.happen(AttemptEnded(attempt, end))

    @rule(grace=st.sampled_from([0.0, 5.0]))
    def is_told_to_stop(self, grace: float) -> None:
        self.stop_asked = self.stop_asked or self.job.end is None
        self.happen(StopAsked(grace))
        if self.job.attempt == 0 or not self.rules.interruptible:
            assert self.job.end is not None, "there is nothing to wait for"

    @precondition(lambda self: self.job.grace is not None and self.rules.reviewed and self.job.end is None)
    @rule()
    def finds_no_room_before_it_is_stopped(self) -> None:
        self.happen(AttemptEnded(self.job.attempt, STOPPED))
        assert self.job.status is JobStatus.STOPPED

    @rule(often=st.integers(0, 9))
    def breaks(self, often: int) -> None:
        """Also before the first attempt, as when it cannot be started."""
        if often == 0:
            self.happen(Broken(FAILURE))
            assert self.job.end is not None

    def happen(self, event: Event) -> None:
        before = self.job
        self.job, instructions = advance(before, event)
        if before.end is not None:
            assert self.job is before
            assert not instructions, "nothing happens to what has ended"
        for instruction in instructions:
            self.carry_out(instruction, before)

    def carry_out(self, instruction: Instruction, before: Job) -> None:
        if isinstance(instruction, StartAttempt):
            self.began.append(instruction.attempt)
            assert self.began == list(range(1, len(self.began) + 1)), "attempts are numbered as they come"
            assert not self.stop_asked, "what was told to stop is not started"
            assert self.to_review is None
            self.live, self.ends = set(range(self.rules.replicas)), []
        elif isinstance(instruction, StopAttempt):
            assert self.live or self.stop_asked
            self.stopped.append(instruction.grace)
            graces = [grace for grace in self.stopped if grace is not None]
            assert graces == sorted(graces, reverse=True), "later orders to stop give less time"
        elif isinstance(instruction, Review):
            assert self.to_review is None
            self.to_review = instruction.attempt
        elif isinstance(instruction, TellRetry):
            spent = sum(end.status is instruction.end.status for end in self.job.attempts)
            assert spent + instruction.left == self.budget(instruction.end.status)
        else:
            self.told_ends += 1

    def budget(self, status: AttemptStatus) -> int:
        preempted = status is AttemptStatus.PREEMPTED
        return self.rules.max_retries_preemption if preempted else self.rules.max_retries_failure

    @invariant()
    def the_end_is_told_once_and_is_true(self) -> None:
        assert self.told_ends == (self.job.end is not None)
        assert self.job.status.finished() == (self.job.end is not None)
        if self.job.end is None:
            return
        statuses = [end.status for end in self.ends]
        lost = AttemptStatus.STOPPED in statuses
        stopped = self.job.status is JobStatus.STOPPED
        assert stopped if self.stop_asked else not stopped or lost
        if self.job.status is JobStatus.SUCCEEDED:
            assert statuses == [AttemptStatus.SUCCEEDED] * self.rules.replicas

    @invariant()
    def both_budgets_are_kept(self) -> None:
        for status in (AttemptStatus.FAILED, AttemptStatus.PREEMPTED):
            assert sum(end.status is status for end in self.job.attempts) <= self.budget(status) + 1

    @invariant()
    def it_ends_when_nothing_is_left_to_happen(self) -> None:
        if self.began and not self.live and self.to_review is None:
            assert self.job.end is not None

    @invariant()
    def replicas_fall_together(self) -> None:
        failed = any(end.status is not AttemptStatus.SUCCEEDED for end in self.ends)
        if failed and self.live and self.job.end is None:
            assert self.stopped, "the others of an attempt that fails are stopped"


def test_any_events_in_any_order() -> None:
    phases = [Phase.generate]  # what fails will be run again: it need not be made small here
    rules = settings(max_examples=40, stateful_step_count=25, deadline=None, database=None, phases=phases)
    run_state_machine_as_test(Life, settings=rules)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("ends", "final", "attempts"),
    [
        ([FAILURE, FAILURE, SUCCESS], JobStatus.FAILED, 2),
        ([PREEMPTION, FAILURE, PREEMPTION, SUCCESS], JobStatus.SUCCEEDED, 4),
        ([PREEMPTION, PREEMPTION, PREEMPTION], JobStatus.FAILED, 3),
    ],
)
def test_failure_and_preemption_have_their_own_budgets(ends: list[AttemptEnd], final: JobStatus, attempts: int) -> None:
    job, _ = advance(Job(JobRules(max_retries_failure=1, max_retries_preemption=2)), Begin())
    for number, end in enumerate(ends, 1):
        job, _ = advance(job, ReplicaEnded(number, 0, end))
    assert (job.status, job.attempt, len(job.attempts)) == (final, attempts, attempts)


def test_a_preemption_among_a_gangs_failures_explains_them() -> None:
    job, _ = advance(Job(JobRules(replicas=2, max_retries_preemption=1)), Begin())
    job, instructions = advance(job, ReplicaEnded(1, 1, FAILURE))
    assert instructions == (StopAttempt(),)
    job, instructions = advance(job, ReplicaEnded(1, 0, PREEMPTION))
    assert instructions == (TellRetry(PREEMPTION, 0), StartAttempt(2))
    assert job.ended == ()
