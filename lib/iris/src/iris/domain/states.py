"""States of jobs and tasks, and the single table of transitions between them.

The numbers are public: users have them in SQL queries and comparisons.
"""

from collections.abc import Mapping
from enum import IntEnum, StrEnum

from iris.domain.errors import IllegalTransition


class _Worded(IntEnum):
    @property
    def word(self) -> str:
        """The state's name in lowercase, for display."""
        return self.name.lower()


class JobState(_Worded):
    """States of a job. PENDING, BUILDING and RUNNING are live; the others are final."""

    PENDING = 1
    BUILDING = 2
    RUNNING = 3
    SUCCEEDED = 4
    FAILED = 5
    KILLED = 6
    WORKER_FAILED = 7
    UNSCHEDULABLE = 8

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended and will never change again."""
        return self >= JobState.SUCCEEDED


class TaskState(_Worded):
    """States of a task. In ASSIGNED, BUILDING and RUNNING it has a live attempt on a worker."""

    PENDING = 1
    BUILDING = 2
    RUNNING = 3
    SUCCEEDED = 4
    FAILED = 5
    KILLED = 6
    WORKER_FAILED = 7
    UNSCHEDULABLE = 8
    ASSIGNED = 9
    PREEMPTED = 10

    @property
    def is_terminal(self) -> bool:
        """Whether the task has ended. Only the restart of its gang reopens a finished task."""
        return self in TERMINAL_TASK_STATES

    @property
    def is_live(self) -> bool:
        """Whether an attempt of the task holds resources on a worker."""
        return self in LIVE_TASK_STATES


class FailureKind(IntEnum):
    """The cause of an attempt's end. UNSPECIFIED counts as the user's code."""

    UNSPECIFIED = 0
    USER = 1  # the command ended with a code or signal of its own
    ENVIRONMENT = 2  # the environment could not be built
    START = 3  # the command could not be started
    WORKER = 4  # the worker's fault: bundle unreachable, files unreadable, worker restarted
    OOM = 5  # the task used more memory than it asked for
    DEVICE = 6  # the accelerator failed or was held by another process
    PREEMPTED = 7  # the platform took the host away
    DISK = 8  # the host's disk was full when it was to begin
    PEER = 9  # the command failed because another member of its gang was gone


class PreemptionReason(StrEnum):
    """Why capacity is taken from an attempt."""

    DRAIN = "drain"  # an operator drains the worker
    BAND = "band"  # more urgent work needs the room
    SPOT = "spot"  # the platform takes the host back
    MAINTENANCE = "maintenance"  # the platform stops the host for maintenance


class PriorityBand(_Worded):
    """Priority bands, served strictly in this order."""

    PRODUCTION = 1
    INTERACTIVE = 2
    BATCH = 3


class ExistingJobPolicy(StrEnum):
    """The policy for a submission whose name a live job has."""

    FAIL = "fail"  # it is refused
    ADOPT = "adopt"  # the live job is the answer
    REPLACE = "replace"  # the live job is stopped; the new one starts when its attempts are gone


class TimeoutKind(StrEnum):
    """The time limits of a job."""

    RUN = "timeout"  # JobSpec.timeout_ms, from the first task's start
    SCHEDULING = "scheduling_timeout"  # JobSpec.scheduling_timeout_ms, from submission to the first assignment


LIVE_TASK_STATES = frozenset({TaskState.ASSIGNED, TaskState.BUILDING, TaskState.RUNNING})
TERMINAL_TASK_STATES = frozenset(
    {
        TaskState.SUCCEEDED,
        TaskState.FAILED,
        TaskState.KILLED,
        TaskState.WORKER_FAILED,
        TaskState.UNSCHEDULABLE,
        TaskState.PREEMPTED,
    }
)

_ENDS = frozenset(
    {TaskState.SUCCEEDED, TaskState.FAILED, TaskState.KILLED, TaskState.WORKER_FAILED, TaskState.PREEMPTED}
)

# A live task that goes back to PENDING is retried: its attempt has ended and the next number will be used.
TASK_TRANSITIONS: Mapping[TaskState, frozenset[TaskState]] = {
    TaskState.PENDING: frozenset({TaskState.ASSIGNED, TaskState.KILLED, TaskState.UNSCHEDULABLE}),
    TaskState.ASSIGNED: _ENDS | {TaskState.BUILDING, TaskState.RUNNING, TaskState.PENDING},
    TaskState.BUILDING: _ENDS | {TaskState.RUNNING, TaskState.PENDING},
    TaskState.RUNNING: _ENDS | {TaskState.PENDING},
    TaskState.SUCCEEDED: frozenset({TaskState.PENDING}),  # only as a member of a gang that restarts whole
    TaskState.FAILED: frozenset(),
    TaskState.KILLED: frozenset(),
    TaskState.WORKER_FAILED: frozenset(),
    TaskState.UNSCHEDULABLE: frozenset(),
    TaskState.PREEMPTED: frozenset(),
}


def check_task_transition(name: str, old: TaskState, new: TaskState, history: tuple[str, ...]) -> None:
    """Raise, with the task's history, unless the table allows the transition.

    Args:
        name: The task.
        old: Its state.
        new: The requested state.
        history: The causes of the task's ended attempts, for the error.

    Raises:
        IllegalTransition: The table does not allow the transition.
    """
    if new not in TASK_TRANSITIONS[old]:
        allowed = tuple(state.word for state in sorted(TASK_TRANSITIONS[old]))
        raise IllegalTransition(f"task {name}", old.word, new.word, allowed, history)
