"""The words for the phases of a followed job."""

import pytest

from iris.cli.job.phases import STILL_EVERY_SECONDS, PhaseTeller
from iris.client import JobStatus
from iris.cluster.types import JobState

P, B, R = JobState.PENDING, JobState.BUILDING, JobState.RUNNING
BUILDING = "building: the worker fetches the files and builds the environment"


@pytest.mark.parametrize(
    "story",
    [
        # A job that runs at once is announced by its output alone.
        [(P, "", 0, ""), (R, "", 1, "")],
        # Building is said at once, then now and then; running says how long it took.
        [
            (B, "", 10, BUILDING),
            (B, "", 11, ""),
            (B, "", 10 + STILL_EVERY_SECONDS, "still building (for 30.0 s)"),
            (B, "", 11 + STILL_EVERY_SECONDS, ""),
            (R, "", 42, "running (built in 32.0 s)"),
            (R, "", 43, ""),
        ],
        # A reason to wait is said again after the job ran in between.
        [
            (P, "no cpu", 0, "waiting: no cpu"), (P, "no cpu", 1, ""), (P, "no gpu", 2, "waiting: no gpu"),
            (R, "", 3, "running"), (P, "no gpu", 4, "waiting: no gpu"),
        ],
        # Tasks that still wait are what counts while others build.
        [(B, "no memory", 0, "waiting: no memory")],
        # Each phase is said anew when another was in between.
        [
            (P, "no cpu", 0, "waiting: no cpu"), (B, "", 1, BUILDING), (P, "no cpu", 2, "waiting: no cpu"),
            (B, "", 50, BUILDING), (R, "", 60, "running (built in 10.0 s)"), (R, "no cpu", 62, "waiting: no cpu"),
            (P, "", 63, ""), (R, "no cpu", 64, ""),
        ],
    ],
)  # fmt: skip
def test_each_phase_is_said_once(story: list[tuple[JobState, str, float, str]]) -> None:
    teller = PhaseTeller()
    for state, reason, now, said in story:
        assert teller.tell(JobStatus("/a/b", state, pending_reason=reason), now) == said
