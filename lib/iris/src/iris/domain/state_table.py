"""Generate the page docs/task-states.md from the tables that the code uses.

Usage: uv run python -m iris.domain.state_table > docs/task-states.md
"""

import sys
from typing import Final

from iris.domain.states import LIVE_TASK_STATES, TASK_TRANSITIONS, FailureKind, JobState, TaskState

_TASK_WORDS: Final = {
    TaskState.PENDING: "waits for a worker; `iris job summary` says why",
    TaskState.ASSIGNED: "a worker was chosen and is told to start it, at once or in the place of one that ends there",
    TaskState.BUILDING: "the worker prepares code and environment",
    TaskState.RUNNING: "its command runs",
    TaskState.SUCCEEDED: "its command ended with code 0; provisional until its whole gang is done",
    TaskState.FAILED: "failed for good: its failures exceed `max_retries_failure`",
    TaskState.KILLED: "ended because its job, or a job above it, ended",
    TaskState.WORKER_FAILED: "lost its worker more often than `max_retries_preemption` allows",
    TaskState.UNSCHEDULABLE: "was not placed within the job's scheduling timeout",
    TaskState.PREEMPTED: "made room for more urgent work more often than `max_retries_preemption` allows",
}
_JOB_WORDS: Final = {
    JobState.PENDING: "no task has been assigned, or all wait for a retry",
    JobState.BUILDING: "some task is assigned or building, none has run yet",
    JobState.RUNNING: "some task runs or has ended",
    JobState.SUCCEEDED: "all tasks succeeded, but for at most `max_task_failures` that failed",
    JobState.FAILED: "more tasks failed for good than `max_task_failures`, or the job ran into its timeout",
    JobState.KILLED: "somebody stopped it, or its parent ended",
    JobState.WORKER_FAILED: "a task ended as worker_failed or preempted",
    JobState.UNSCHEDULABLE: "nothing of it was placed within its scheduling timeout",
}
_EVIDENCE: Final = {
    FailureKind.UNSPECIFIED: ("failure", "a worker that does not say; counts as the user's"),
    FailureKind.USER: (
        "failure",
        "the command ended with a code or signal of its own, or at its limit of disk",
    ),
    FailureKind.ENVIRONMENT: ("failure", "the environment could not be built"),
    FailureKind.START: ("failure", "the command does not exist or is not executable"),
    FailureKind.WORKER: ("preemption", "the worker's fault; speaks against the host unless it ran"),
    FailureKind.OOM: ("failure", "it used more memory than it asked for"),
    FailureKind.DEVICE: ("preemption", "the accelerator failed or was busy; speaks against the host"),
    FailureKind.PREEMPTED: ("preemption", "the platform took the host away"),
    FailureKind.DISK: ("preemption", "the host's disk was full when it was to begin; does not speak against the host"),
}


def render() -> str:
    """Return the whole page in Markdown."""
    return "\n".join(
        [
            "# States of tasks and jobs",
            "",
            "This page is generated (`uv run python -m iris.domain.state_table > docs/task-states.md`); a test fails",
            "when it is not current. The numbers are public: they are what `iris query` shows.",
            "",
            "## Tasks",
            "",
            *_table(("number", "state", "kind", "meaning"), [_task_row(state) for state in TaskState]),
            "",
            "## Transitions of tasks",
            "",
            "Everything not listed is refused, with the task's history in the error. A live task that goes back to",
            "pending is retried: its attempt has ended and its next one gets the next number.",
            "",
            *_table(("from", "to"), [(state.word, _targets(state)) for state in TaskState]),
            "",
            "## Jobs",
            "",
            *_table(
                ("number", "state", "kind", "meaning"),
                [(str(int(s)), s.word, "ended" if s.is_terminal else "live", _JOB_WORDS[s]) for s in JobState],
            ),
            "",
            "## What an attempt's end is charged to",
            "",
            "Failures and preemptions have budgets of their own: `max_retries_failure` and `max_retries_preemption`.",
            "Lost workers, cut-off reports and scheduler preemptions are charged as preemptions; a drained host, and",
            "members of a gang that restart because of another member, are charged nothing.",
            "",
            *_table(
                ("evidence", "charged as", "meaning"),
                [(kind.name.lower(), *_EVIDENCE[kind]) for kind in FailureKind],
            ),
            "",
        ]
    )


def _task_row(state: TaskState) -> tuple[str, ...]:
    kind = "ended" if state.is_terminal else "live: holds resources" if state in LIVE_TASK_STATES else "waiting"
    return (str(int(state)), state.word, kind, _TASK_WORDS[state])


def _targets(state: TaskState) -> str:
    targets = ", ".join(target.word for target in sorted(TASK_TRANSITIONS[state])) or "(nothing)"
    return f"{targets} (only as a member of a gang that restarts)" if state is TaskState.SUCCEEDED else targets


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


if __name__ == "__main__":
    sys.stdout.write(render())
