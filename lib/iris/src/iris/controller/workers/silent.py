"""Attempts that may still run on unreachable workers, and so cannot be reported as stopped."""

from collections.abc import Iterable, Iterator

from iris.controller.workers.sessions import Sessions
from iris.core.state.booking import Booking
from iris.core.state.view import ClusterView
from iris.domain.entities import SilentAttempt, Task
from iris.domain.ids import JobId, attempt_id
from iris.domain.states import TaskState


def silent_attempts(
    view: ClusterView, sessions: Sessions, job_id: JobId, tasks: Iterable[Task] | None = None
) -> Iterator[SilentAttempt]:
    """Return a job's silent attempts in task order, including lost ones only if they may still run.

    Args:
        view: The cluster.
        sessions: Knows which workers are connected.
        job_id: The job.
        tasks: The tasks to look at; None for all. Some lost attempts of others may be included.
    """
    job = view.jobs[job_id]
    ending = view.stopping_counts.get(job_id, 0)
    if ending or not job.state.is_terminal:
        for task in view.tasks[job_id] if tasks is None else tasks:
            current = "" if task.state is TaskState.PENDING or task.worker_id is None else task.attempt_id
            for number in range(0 if ending else task.attempt, task.attempt + 1):  # earlier ones may still stop
                booking = view.bookings.get(attempt_id(task.task_id, number))
                if booking is not None and (booking.stopping or booking.attempt_id == current):
                    yield from _if_silent(view, sessions, booking, is_wanted=not booking.stopping)
    for name in view.lost_of(job_id) if view.lost else ():
        if name in view.bookings:
            continue  # it is heard of again, and told above
        worker_id = view.lost[name].worker_id
        yield SilentAttempt(name, worker_id, sessions.silent_ms(worker_id), False, 0)


def _if_silent(view: ClusterView, sessions: Sessions, booking: Booking, is_wanted: bool) -> Iterator[SilentAttempt]:
    worker_id = booking.worker_id
    worker = view.workers[worker_id]
    is_heard = worker.connected and not worker.is_late
    if is_heard and not worker.trouble:
        return
    spec = view.jobs[booking.job_id].spec
    fenced_in_ms = sessions.fenced_in_ms(worker_id, spec) if spec.exclusive else 0
    silent_ms, trouble = sessions.silent_ms(worker_id), worker.trouble if is_heard else ""
    yield SilentAttempt(booking.attempt_id, worker_id, silent_ms, is_wanted, fenced_in_ms, trouble)
