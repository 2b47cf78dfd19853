"""Rules for silent workers: late, lost, or gone."""

from dataclasses import replace

from iris.core.rules import job_rules
from iris.core.rules.draft import Draft
from iris.core.rules.task_rules import lose
from iris.core.rules.worker_rules import lose_attempt
from iris.domain.effects import StopAttempt, WithdrawAttempt
from iris.domain.entities import Worker
from iris.domain.events import AttemptFenced, WorkerGone, WorkerHeard, WorkerLate, WorkerLost
from iris.domain.ids import WorkerId
from iris.domain.job_spec import waits_for_host
from iris.domain.states import TaskState
from rigging.errors import Conflict, NotFound


def be_late(draft: Draft, event: WorkerLate) -> None:
    """Assign nothing more to the worker. Its unacknowledged attempts are retried elsewhere; these retries do not count.

    Attempts that wait for their host stay, because the start may have arrived.
    """
    worker = draft.view.workers.get(event.worker_id)
    if worker is None or worker.is_late:
        return
    seen = draft.now_ms - event.silent_ms if worker.connected else worker.last_seen_at_ms
    draft.changes.workers[event.worker_id] = replace(worker, is_late=True, last_seen_at_ms=seen)
    silence = f"{round(event.silent_ms / 1000, 1):g} s"
    reason = f"never acknowledged by its worker, which was not heard for {silence}"
    for booking in [] if event.keeps else list(draft.view.attempts_on(event.worker_id)):
        found, number = draft.view.find_attempt(booking.attempt_id)
        if booking.stopping or found is None or waits_for_host(draft.job(booking.job_id).spec):
            continue
        task = draft.task(found.job_id, found.index)
        if task.attempt == number and task.state is TaskState.ASSIGNED:
            draft.give_up_wanted(booking.attempt_id, event.worker_id, is_charged=False)
            draft.effects.append(WithdrawAttempt(booking.attempt_id, event.worker_id))
            task, verdict = lose(draft, task, reason, is_charged=False)
            job_rules.follow_task(draft, task, verdict)


def be_heard(draft: Draft, event: WorkerHeard) -> None:
    """Use the worker again. Its lost attempts keep their resources until the worker reports their state.

    In an open session, ask the worker to hand lost attempts back. It receives any earlier start before this request, so
    new attempts do not start beside lost ones. Without a session, `reconcile` asks later.
    """
    worker = draft.view.workers.get(event.worker_id)
    if worker is None or not worker.is_late:
        return
    draft.changes.workers[event.worker_id] = replace(worker, is_late=False, last_seen_at_ms=draft.now_ms)
    if worker.connected:
        for name in draft.view.lost_on(event.worker_id):
            lost = draft.view.lost[name]
            draft.track_stray(name, lost.job_id, event.worker_id)
            if lost.may_return:
                draft.effects.append(WithdrawAttempt(name, event.worker_id))


def lose_worker(draft: Draft, event: WorkerLost) -> None:
    """Declare the worker's attempts lost: retry or end live ones, and stop waiting for stopping ones.

    Attempts that wait for their host are unchanged. Lost attempts may still run, and are recorded because they may
    become current again.

    Raises:
        NotFound: The worker does not exist.
    """
    _disconnect(draft, _known(draft, event.worker_id))
    for booking in list(draft.view.attempts_on(event.worker_id)):
        if not booking.stopping and not waits_for_host(draft.job(booking.job_id).spec):
            if booking.attempt_id in draft.changes.lost:
                continue  # with another member of its gang
            draft.give_up_wanted(booking.attempt_id, event.worker_id, is_charged=not booking.prefilled)
            lose_attempt(draft, booking.attempt_id, event.reason)
    draft.release_worker(event.worker_id, is_gone=False)


def be_gone(draft: Draft, event: WorkerGone) -> None:
    """Treat every attempt on the worker as gone, including lost ones and those that wait for their host.

    Raises:
        NotFound: The worker does not exist. Conflict: The worker is connected.
    """
    worker = _known(draft, event.worker_id)
    if worker.connected:
        known = "is connected, though late" if worker.is_late else "is connected"
        raise Conflict(f"worker {event.worker_id} {known}, so its host is not gone: drain it, or stop it first")
    for booking in list(draft.view.attempts_on(event.worker_id)):
        if not booking.stopping:
            lose_attempt(draft, booking.attempt_id, event.reason)
    draft.release_worker(event.worker_id, is_gone=True)
    draft.forget_lost(event.worker_id)


def fence(draft: Draft, event: AttemptFenced) -> None:
    """Record that the host has ended the attempt. An attempt that has already ended is unchanged.

    The start may still be pending for a frozen worker, which must receive the stop before it counts as connected.
    """
    booking = draft.view.bookings.get(event.attempt_id)
    if booking is None:
        return
    draft.effects.append(StopAttempt(event.attempt_id, booking.worker_id, event.reason))
    if booking.stopping:
        draft.release(event.attempt_id, booking.job_id)
    else:
        lose_attempt(draft, event.attempt_id, event.reason)


def _disconnect(draft: Draft, worker: Worker) -> None:
    if worker.connected or worker.is_late:
        seen = draft.now_ms if worker.connected and not worker.is_late else worker.last_seen_at_ms
        draft.changes.workers[worker.worker_id] = replace(worker, connected=False, is_late=False, last_seen_at_ms=seen)


def _known(draft: Draft, worker_id: WorkerId) -> Worker:
    worker = draft.view.workers.get(worker_id)
    if worker is None:
        raise NotFound(f"worker {worker_id} does not exist")
    return worker
