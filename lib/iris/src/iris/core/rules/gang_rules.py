"""A gang starts, restarts and stops as one."""

from iris.core.rules.draft import Draft
from iris.core.rules.task_rules import requeue
from iris.domain.entities import Task
from iris.domain.states import LIVE_TASK_STATES, TaskState


def restart_with(draft: Draft, member: Task) -> None:
    """After one member of a gang has to be retried, send all others back too, finished ones included.

    Only the member at fault is charged; the rendezvous of the next round needs every member.
    """
    why = _why(draft, member)
    for task in list(draft.tasks_of(member.job_id)):
        if task.index == member.index:
            continue
        if task.state in LIVE_TASK_STATES or task.state is TaskState.SUCCEEDED:
            was = "taken back" if task.state is TaskState.SUCCEEDED else "killed"
            requeue(draft, task, f"{was}: gang restarted because {why}", member.retry_at_ms)


def _why(draft: Draft, member: Task) -> str:
    """Return the fault of a member, e.g. "task 0 lost worker w7: slice s2 preempted"."""
    before = draft.view.tasks[member.job_id][member.index]
    what = member.causes[-1].split(": ", 1)[-1] if member.causes else "unknown"
    if member.failures > before.failures:
        return f"task {member.index} failed on {before.worker_id}: {what}"
    return f"task {member.index} lost worker {before.worker_id}: {what}"
