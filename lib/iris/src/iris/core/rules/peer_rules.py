"""Rules for a gang's member that failed because another member was gone: the other's cause counts, if it has one."""

from iris.core.rules.draft import Draft
from iris.core.state.view import ClusterView
from iris.domain.entities import Task
from iris.domain.events import AttemptObserved
from iris.domain.job_spec import is_gang
from iris.domain.states import FailureKind, TaskState


def awaits_peers(view: ClusterView, event: AttemptObserved) -> bool:
    """Return whether an end should wait for the causes of other members, which outrank its own.

    Args:
        view: The cluster.
        event: A worker's report.
    """
    if event.failure_kind is not FailureKind.PEER or event.state is not TaskState.FAILED:
        return False
    task, number = view.find_attempt(event.attempt_id)
    if task is None or task.attempt != number or not task.state.is_live or not is_gang(view.jobs[task.job_id].spec):
        return False
    return any(other.state.is_live for other in view.tasks[task.job_id] if other.index != task.index)


def lost_peer(draft: Draft, task: Task) -> str:
    """Return the member whose host is out of reach, in words; empty if there is none. Then the failure is its own."""
    if not is_gang(draft.job(task.job_id).spec):
        return ""
    for other in draft.tasks_of(task.job_id):
        if other.index != task.index and other.worker_id is not None and draft.is_out_of_reach(other.worker_id):
            return f"task {other.index} is on {other.worker_id}, which is out of reach"
    return ""
