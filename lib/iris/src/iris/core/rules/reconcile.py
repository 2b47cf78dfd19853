"""Reconcile the controller's state with a worker's inventory after it (re)connects."""

from dataclasses import dataclass, field

from iris.core.state.view import ClusterView
from iris.domain.events import AttemptMissing, AttemptObserved, Event
from iris.domain.ids import AttemptId, JobId, WorkerId
from iris.domain.states import TaskState


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The result of comparing a worker's inventory with the view.

    Args:
        events: Events to reduce and apply in this order, before any assignment.
        to_start: The worker's attempts that it never received, or that may start without waiting. to_stop: Attempts to
            end.
        to_forget: Ended attempts known to the controller.
    """

    events: list[Event] = field(default_factory=list)
    to_start: list[AttemptId] = field(default_factory=list)
    to_stop: list[AttemptId] = field(default_factory=list)
    to_forget: list[AttemptId] = field(default_factory=list)


def reconcile(
    view: ClusterView, worker_id: WorkerId, new_instance: bool, inventory: list[AttemptObserved]
) -> Reconciliation:
    """Compare a worker's inventory with the view. Reduce WorkerConnected first.

    Args:
        view: Never modified.
        worker_id: The worker.
        new_instance: Whether this is another instance than the last connected one. Then a missing attempt may have run,
            so it is retried under a new number even if its start was never confirmed.
        inventory: The last observation of every attempt that the worker knows.
    """
    result = Reconciliation()
    there = {observation.attempt_id for observation in inventory}
    for booking in view.attempts_on(worker_id):
        name = booking.attempt_id
        if name in there:
            continue
        task, _ = view.find_attempt(name)
        never_started = task is not None and task.state is TaskState.ASSIGNED and not booking.stopping
        # One whose original is heard of again is not begun any more.
        if never_started and not new_instance and not _has_original(view, booking.job_id):
            result.to_start.append(name)
            continue
        reason = "its worker restarted" if new_instance else "its worker lost it"
        result.events.append(AttemptMissing(name, reason))
    for name in view.lost_on(worker_id):
        if name not in there:
            result.events.append(AttemptMissing(name, "its worker lost it"))
    for observation in inventory:
        _compare(view, worker_id, observation, result)
        if not new_instance and _need_not_wait(view, observation):
            result.to_start.append(observation.attempt_id)
    return result


def _has_original(view: ClusterView, job_id: JobId) -> bool:
    return any(view.lost[name].job_id == job_id for name in view.returned)


def _need_not_wait(view: ClusterView, observation: AttemptObserved) -> bool:
    """Return whether an attempt waits on the worker although it may start, because the worker missed the message."""
    booking = view.bookings.get(observation.attempt_id)
    if observation.state is not TaskState.ASSIGNED or booking is None or booking.prefilled or booking.stopping:
        return False
    task, _ = view.find_attempt(observation.attempt_id)
    return task is not None and task.state is TaskState.ASSIGNED


def _compare(view: ClusterView, worker_id: WorkerId, observation: AttemptObserved, result: Reconciliation) -> None:
    name = observation.attempt_id
    booking = view.bookings.get(name)
    # A booked or lost attempt may be of a task that is no more: its job's name was used again, for fewer tasks.
    if booking is not None or name in view.lost or view.find_attempt(name)[0] is not None:
        result.events.append(observation)  # the reducer tells stale from live and says what to stop or forget
        told_before = booking is not None and booking.stopping and booking.worker_id == worker_id
        if told_before and name not in view.lost and not observation.state.is_terminal:
            result.to_stop.append(name)
    elif observation.state.is_terminal or observation.state is TaskState.PENDING:
        result.to_forget.append(name)
    else:
        result.to_stop.append(name)
