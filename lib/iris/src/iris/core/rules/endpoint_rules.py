"""Rules for added and removed endpoints. `Draft.put_task` removes them with their attempt."""

from iris.core.rules.draft import Draft
from iris.core.state.view import ClusterView
from iris.domain.endpoints import CHECKPOINT, namespace_of, validate_endpoint
from iris.domain.events import EndpointRegistered, EndpointRemoved
from iris.domain.ids import AttemptId, is_below
from iris.domain.states import TaskState
from rigging.errors import Conflict, Denied


def register(draft: Draft, event: EndpointRegistered) -> None:
    """Bind the name to the attempt's address.

    Raises:
        InvalidRequest: The name, address or metadata is invalid. Conflict: The attempt is not live.
        Denied: The name is outside of the job and its ancestors.
    """
    endpoint = event.endpoint
    validate_endpoint(endpoint)
    task, number = draft.view.find_attempt(endpoint.attempt_id)
    is_own = task is not None and endpoint.name == f"{task.job_id}/{CHECKPOINT}"
    if is_own and has_grace(draft.view, endpoint.attempt_id):
        draft.changes.checkpoints.append(endpoint)
        return
    if task is None or task.attempt != number or not task.state.is_live:
        state = "is not known" if task is None else f"has ended; {task.task_id} is {task.state.word}"
        raise Conflict(f"endpoint {endpoint.name}: attempt {endpoint.attempt_id} {state}, so nothing can answer there")
    namespace = namespace_of(endpoint.name)
    if namespace != task.job_id and not is_below(task.job_id, namespace):
        raise Denied(
            f"endpoint {endpoint.name}: a task of {task.job_id} may register names of that job and of those above it"
        )
    draft.changes.endpoints[endpoint.endpoint_id] = endpoint


def has_grace(view: ClusterView, attempt_id: AttemptId) -> bool:
    """Return whether an attempt is stopping, and its task waits for its next attempt: it may save its work."""
    task, number = view.find_attempt(attempt_id)
    booking = view.bookings.get(attempt_id)
    is_last = task is not None and task.attempt == number and task.state is TaskState.PENDING
    return is_last and booking is not None and booking.stopping and not booking.found


def remove(draft: Draft, event: EndpointRemoved) -> None:
    """Unbind the name."""
    if draft.view.endpoints.get(event.endpoint_id) is not None:
        draft.changes.endpoints[event.endpoint_id] = None
