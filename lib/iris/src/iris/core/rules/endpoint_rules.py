"""Rules for added and removed endpoints. `Draft.put_task` removes them with their attempt."""

from iris.core.rules.draft import Draft
from iris.domain.endpoints import namespace_of, validate_endpoint
from iris.domain.events import EndpointRegistered, EndpointRemoved
from iris.domain.ids import is_below
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
    if task is None or task.attempt != number or not task.state.is_live:
        state = "is not known" if task is None else f"has ended; {task.task_id} is {task.state.word}"
        raise Conflict(f"endpoint {endpoint.name}: attempt {endpoint.attempt_id} {state}, so nothing can answer there")
    namespace = namespace_of(endpoint.name)
    if namespace != task.job_id and not is_below(task.job_id, namespace):
        raise Denied(
            f"endpoint {endpoint.name}: a task of {task.job_id} may register names of that job and of those above it"
        )
    draft.changes.endpoints[endpoint.endpoint_id] = endpoint


def remove(draft: Draft, event: EndpointRemoved) -> None:
    """Unbind the name."""
    if draft.view.endpoints.get(event.endpoint_id) is not None:
        draft.changes.endpoints[event.endpoint_id] = None
