"""A gang starts, restarts and stops as one."""

from iris.core.draft import Draft
from iris.core.task_rules import requeue
from iris.domain.entities import Task
from iris.domain.states import LIVE_TASK_STATES, TaskState


def restart_with(draft: Draft, member: Task) -> None:
    """After one member of a gang has to be retried, send all others back too, finished ones included.

    Only the member at fault is charged; the rendezvous of the next round needs every member.
    """
    reason = f"restarted with its gang: task {member.index}: {member.causes[-1] if member.causes else 'lost'}"
    for task in list(draft.tasks_of(member.job_id)):
        if task.index == member.index:
            continue
        if task.state in LIVE_TASK_STATES or task.state is TaskState.SUCCEEDED:
            requeue(draft, task, reason)
