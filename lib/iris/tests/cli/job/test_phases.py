"""The words for the phases of a followed job."""

from iris.cli.job.phases import STILL_EVERY_SECONDS, PhaseTeller
from iris.client import JobStatus
from iris.cluster.types import JobState


def status(state: JobState, reason: str = "") -> JobStatus:
    return JobStatus("/a/b", state, pending_reason=reason)


def test_a_job_that_runs_at_once_is_announced_by_its_output_alone():
    teller = PhaseTeller()
    assert teller.tell(status(JobState.PENDING), 0.0) == ""
    assert teller.tell(status(JobState.RUNNING), 1.0) == ""


def test_building_is_said_at_once_then_now_and_then_and_running_says_how_long_it_took():
    teller = PhaseTeller()
    assert teller.tell(status(JobState.BUILDING), 10.0).startswith("building: ")
    assert teller.tell(status(JobState.BUILDING), 11.0) == ""
    assert teller.tell(status(JobState.BUILDING), 10.0 + STILL_EVERY_SECONDS) == "still building (for 30.0 s)"
    assert teller.tell(status(JobState.BUILDING), 11.0 + STILL_EVERY_SECONDS) == ""
    assert teller.tell(status(JobState.RUNNING), 42.0) == "running (built in 32.0 s)"
    assert teller.tell(status(JobState.RUNNING), 43.0) == ""


def test_a_reason_to_wait_is_said_again_after_the_job_ran_in_between():
    teller = PhaseTeller()
    assert teller.tell(status(JobState.PENDING, "no cpu"), 0.0) == "waiting: no cpu"
    assert teller.tell(status(JobState.PENDING, "no cpu"), 1.0) == ""
    assert teller.tell(status(JobState.RUNNING), 2.0) == "running"
    assert teller.tell(status(JobState.PENDING, "no cpu"), 3.0) == "waiting: no cpu"


def test_tasks_that_still_wait_are_what_counts_while_others_build():
    teller = PhaseTeller()
    assert teller.tell(status(JobState.BUILDING, "no memory"), 0.0) == "waiting: no memory"


def test_each_phase_is_said_anew_when_another_was_in_between():
    teller = PhaseTeller()
    assert teller.tell(status(JobState.PENDING, "no cpu"), 0.0) == "waiting: no cpu"
    assert teller.tell(status(JobState.BUILDING), 1.0).startswith("building: ")
    assert teller.tell(status(JobState.PENDING, "no cpu"), 2.0) == "waiting: no cpu"
    assert teller.tell(status(JobState.BUILDING), 50.0).startswith("building: ")
    assert teller.tell(status(JobState.RUNNING), 60.0) == "running (built in 10.0 s)"
    assert teller.tell(status(JobState.RUNNING), 61.0) == ""
    assert teller.tell(status(JobState.RUNNING, "no cpu"), 62.0) == "waiting: no cpu"
    assert teller.tell(status(JobState.PENDING), 63.0) == ""
    assert teller.tell(status(JobState.RUNNING, "no cpu"), 64.0) == ""
