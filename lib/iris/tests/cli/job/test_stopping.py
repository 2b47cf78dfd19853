from collections.abc import Sequence
from typing import Any

import pytest

from iris.cli.job.stopping import await_stop, await_stops
from iris.client import SilentAttempt, Stopped, TaskStatus
from iris.cluster.types import TaskState
from rigging.errors import NotFound

GONE = SilentAttempt("/ann/a/0:1", "w1", 75.4)
FENCED = SilentAttempt("/ann/a/0:1", "w1", 75.4, fenced_in_seconds=535.2)
OUT_OF_REACH = f"ended, but {GONE}"


class Client:
    """Says what tasks there are and, after so many polls of the given length, that everything has ended."""

    def __init__(self, *silent: SilentAttempt, polls: int = 1, done: bool = True) -> None:
        self._silent, self._left, self._done = silent, polls, done
        self.now = 0.0
        self.polled: list[str] = []

    def clock(self) -> float:
        return self.now

    def poll_jobs(self, jobs: Sequence[str], seconds: float) -> tuple[list[object], bool]:
        self.polled += jobs
        self._left -= 1
        if self._left or not self._done:
            self.now += seconds
        return [], self._done and not self._left

    def list_tasks(self, job_id: str) -> list[TaskStatus]:
        mine = [attempt for attempt in self._silent if attempt.attempt_id.startswith(f"{job_id}/")]
        return [TaskStatus(f"{job_id}/0", TaskState.KILLED, silent=tuple(mine))]


@pytest.mark.parametrize(
    ("client", "stopped", "words"),
    [
        (Client(), Stopped(()), "had ended before"),
        (Client(), Stopped(("/ann/a",)), "stopped"),
        (Client(polls=4), Stopped(("/ann/a",)), "stopped"),
        (Client(done=False), Stopped(("/ann/a",)), "ended; its attempts are still being stopped"),
        (Client(), Stopped(("/ann/a",), (GONE,)), OUT_OF_REACH),
        (Client(FENCED, done=False), Stopped(("/ann/a",)),
            f"{OUT_OF_REACH}, or by its fence in 535 s at the latest"),
        (Client(done=False), Stopped(("/ann/a",), (GONE,) * 7), "; and 2 more"),
        (Client(done=False), Stopped(("/ann/a",), (GONE,) * 5), "; ".join(["", *[str(GONE)] * 4])),
    ],
)  # fmt: skip
def test_only_what_has_stopped_is_said_to_have(client: Any, stopped: Stopped, words: str) -> None:
    assert await_stop(client, stopped, client.clock).endswith(words)


def test_what_was_given_up_while_it_was_waited_for_is_named_and_nobody_waits_for_what_cannot_be_reached() -> None:
    client: Any = Client(GONE, polls=3)  # its worker froze just before: the controller did not know yet
    assert await_stop(client, Stopped(("/ann/a",)), client.clock) == OUT_OF_REACH
    assert client.now <= 5, "it is told as soon as it is known"
    client = Client(done=False)
    await_stop(client, Stopped(("/ann/a",), (GONE,)), client.clock)
    assert client.polled == []


def test_of_jobs_stopped_together_each_has_its_own_truth() -> None:
    client: Any = Client(GONE, polls=2)
    results = [Stopped(("/ann/a", "/ann/a/c")), Stopped(("/ann/b",)), NotFound("no job x"), Stopped(())]
    lines = list(await_stops(client, results, client.clock))
    assert lines == [f" and 1 child job {OUT_OF_REACH}", " stopped", ": no job x", " had ended before"]
    client = Client()
    family, silent = Stopped(("/ann/a", "/ann/a/c", "/ann/a/d")), Stopped(("/ann/b",), (GONE,))
    assert list(await_stops(client, [family, silent])) == [" and 2 child jobs stopped", f" {OUT_OF_REACH}"]
    assert client.polled == ["/ann/a", "/ann/a/c", "/ann/a/d"]


def test_a_running_attempt_that_is_out_of_reach_is_told_as_such() -> None:
    running = SilentAttempt("/ann/a/0:0", "w1", 12, is_wanted=True, fenced_in_seconds=600)
    assert str(running) == (
        "attempt 0 of /ann/a/0 on worker w1 (silent for 12 s) may still run; its fence ends it in 600 s at the latest"
    )
