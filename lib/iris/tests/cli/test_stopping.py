"""What `iris job stop` and Ctrl-C say of attempts that nobody can reach."""

from collections.abc import Sequence

import pytest

from iris.cli.stopping import await_stop
from iris.client import SilentAttempt, Stopped, TaskStatus
from iris.cluster.types import TaskState

GONE = SilentAttempt("/ann/a/0:1", "w1", 75.4)
FENCED = SilentAttempt("/ann/a/0:1", "w1", 75.4, fenced_in_seconds=535.2)


class Client:
    """Says what tasks there are and whether everything has ended."""

    def __init__(self, done: bool, *silent: SilentAttempt) -> None:
        self._done = done
        self._silent = silent
        self.waited: list[float] = []

    def poll_jobs(self, jobs: Sequence[str], seconds: float) -> tuple[list[object], bool]:
        self.waited.append(seconds)
        return [], self._done

    def list_tasks(self, job_id: str) -> list[TaskStatus]:
        return [TaskStatus(f"{job_id}/0", TaskState.KILLED, silent=self._silent)]


@pytest.mark.parametrize(
    ("client", "stopped", "words"),
    [
        (Client(True), Stopped(()), "had ended before"),
        (Client(True), Stopped(("/ann/a",)), "stopped"),
        (Client(False), Stopped(("/ann/a",)), "ended; its attempts are still being stopped"),
        (
            Client(True),
            Stopped(("/ann/a",), (GONE,)),
            "ended, but attempt 1 of /ann/a/0 on worker w1 (silent for 75 s) will be stopped when its host is reached",
        ),
        (
            Client(False, FENCED),
            Stopped(("/ann/a",)),
            "ended, but attempt 1 of /ann/a/0 on worker w1 (silent for 75 s) will be stopped when its host is reached, "
            "or by its fence, in 535 s at the latest",
        ),
        (Client(False), Stopped(("/ann/a",), (GONE,) * 7), "; and 2 more"),
    ],
)
def test_only_what_has_stopped_is_said_to_have(client, stopped, words):
    assert await_stop(client, stopped).endswith(words)


def test_nobody_waits_for_what_cannot_be_reached():
    client = Client(False)
    await_stop(client, Stopped(("/ann/a",), (GONE,)))
    assert client.waited == [0]


def test_a_running_attempt_that_is_out_of_reach_is_told_as_such():
    running = SilentAttempt("/ann/a/0:0", "w1", 12, is_wanted=True, fenced_in_seconds=600)
    assert str(running) == (
        "attempt 0 of /ann/a/0 on worker w1 (silent for 12 s) may still run; by its fence it has ended in 600 s at the "
        "latest"
    )
