"""Rules for workers that connect, change their capacity, leave, and are lost."""

from dataclasses import replace

from iris.core.rules import job_rules
from iris.core.rules.draft import Draft
from iris.core.rules.task_rules import evict, lose
from iris.domain.entities import Worker
from iris.domain.events import (
    AttemptMissing,
    LendCpu,
    Preempted,
    WorkerConnected,
    WorkerCordoned,
    WorkerDisconnected,
    WorkerResized,
    WorkerTroubled,
    WorkerUncordoned,
)
from iris.domain.ids import AttemptId, WorkerId
from iris.domain.states import LIVE_TASK_STATES, PreemptionReason
from rigging.errors import InvalidRequest, NotFound


def connect(draft: Draft, event: WorkerConnected) -> None:
    """Mark the worker as connected. `reconcile` handles its attempts."""
    known = draft.view.workers.get(event.worker_id)
    draft.changes.workers[event.worker_id] = Worker(
        event.worker_id,
        event.instance_id,
        event.capacity,
        event.attributes,
        True,
        draft.now_ms,
        "" if known is None else known.cordon_reason,
        0 if known is None else known.strikes,
        cordoned_by="" if known is None else known.cordoned_by,
        cordoned_at_ms=0 if known is None else known.cordoned_at_ms,
    )


def resize(draft: Draft, event: WorkerResized) -> None:
    """Record the worker's new capacity. Running attempts continue. Ignore a message of an older instance."""
    worker = draft.view.workers.get(event.worker_id)
    if worker is not None and worker.instance_id == event.instance_id and worker.capacity != event.capacity:
        draft.changes.workers[event.worker_id] = replace(worker, capacity=event.capacity)


def be_troubled(draft: Draft, event: WorkerTroubled) -> None:
    """Record why the worker cannot start attempts ("" if it can), and assign nothing to it meanwhile. Its attempts
    continue. Ignore a message of an older instance.
    """
    worker = draft.view.workers.get(event.worker_id)
    if worker is not None and worker.instance_id == event.instance_id and worker.trouble != event.trouble:
        draft.changes.workers[event.worker_id] = replace(worker, trouble=event.trouble)


def disconnect(draft: Draft, event: WorkerDisconnected) -> None:
    """Assign nothing new to the worker. Running attempts continue. Ignore an older instance's goodbye."""
    worker = draft.view.workers.get(event.worker_id)
    if worker is not None and worker.connected and worker.instance_id == event.instance_id:
        seen = worker.last_seen_at_ms if worker.is_late else draft.now_ms
        gone = replace(worker, connected=False, last_seen_at_ms=seen)
        draft.changes.workers[event.worker_id] = gone


def miss(draft: Draft, event: AttemptMissing) -> None:
    """Handle an attempt that is missing on its worker."""
    booking = draft.view.bookings.get(event.attempt_id)
    if event.attempt_id in draft.view.lost:
        draft.changes.lost[event.attempt_id] = None
    if booking is None:
        return
    if booking.stopping:
        draft.release(event.attempt_id, booking.job_id)
    else:
        lose_attempt(draft, event.attempt_id, event.reason)


def lose_attempt(draft: Draft, name: AttemptId, reason: str) -> None:
    """Retry a live attempt that its worker lost. An attempt that this event has already ended is unchanged.

    For a prefilled attempt without a reported start, the retry does not count.

    Args:
        draft: Receives the changes.
        name: The attempt.
        reason: Added to the task's causes.
    """
    found, number = draft.view.find_attempt(name)
    booking = draft.view.bookings.get(name)
    if found is None:
        return
    task = draft.task(found.job_id, found.index)
    if task.attempt == number and task.state in LIVE_TASK_STATES:
        task, verdict = lose(draft, task, reason, is_charged=booking is None or not booking.prefilled)
        job_rules.follow_task(draft, task, verdict)


def preempt(draft: Draft, event: Preempted) -> None:
    """Stop a live attempt and its gang, and make their tasks pending. The attempts keep their resources until they have
    ended.

    An attempt that has already ended is unchanged.
    """
    draft.preemption = event.cause
    _send_away(draft, event.attempt_id, event.reason, is_charged=True)


def cordon(draft: Draft, event: WorkerCordoned) -> None:
    """Assign nothing more to the worker. Draining also retries its live attempts elsewhere; these retries do not count.

    Prefilled attempts without a reported start always move elsewhere.

    Raises:
        NotFound: The worker does not exist. InvalidRequest: There is no reason.
    """
    if not event.reason:
        raise InvalidRequest(f"worker {event.worker_id} cannot be cordoned without a reason")
    draft.changes.workers[event.worker_id] = replace(
        _known(draft, event.worker_id),
        cordon_reason=event.reason,
        cordoned_by=event.by,
        cordoned_at_ms=draft.now_ms,
    )
    what = "drained" if event.drain else "cordoned"
    draft.preemption = PreemptionReason.DRAIN
    for booking in list(draft.view.attempts_on(event.worker_id)):
        if event.drain or booking.prefilled:
            why = f"worker {event.worker_id} is {what}: {event.reason}"
            _send_away(draft, booking.attempt_id, why, is_charged=False)


def uncordon(draft: Draft, event: WorkerUncordoned) -> None:
    """Use the worker again, and reset its strikes.

    Raises:
        NotFound: The worker does not exist.
    """
    known = _known(draft, event.worker_id)
    draft.changes.workers[event.worker_id] = replace(
        known, cordon_reason="", strikes=0, cordoned_by="", cordoned_at_ms=0
    )


def _known(draft: Draft, worker_id: WorkerId) -> Worker:
    worker = draft.view.workers.get(worker_id)
    if worker is None:
        known = sorted(draft.view.workers)
        there = f"known are {', '.join(known[:5])}{', ...' if len(known) > 5 else ''}" if known else "none is known"
        raise NotFound(f"worker {worker_id} does not exist; {there}")
    return worker


def _send_away(draft: Draft, name: AttemptId, reason: str, is_charged: bool) -> None:
    booking = draft.view.bookings.get(name)
    found, number = draft.view.find_attempt(name)
    if booking is None or booking.stopping or found is None:
        return
    task = draft.task(found.job_id, found.index)
    if task.attempt == number and task.state in LIVE_TASK_STATES:
        task, verdict = evict(draft, task, reason, is_charged)
        job_rules.follow_task(draft, task, verdict)


def lend(draft: Draft, event: LendCpu) -> None:
    """Count the concurrent waits during which a live attempt lends its CPUs."""
    booking = draft.view.bookings.get(event.attempt_id)
    if booking is None or booking.stopping:
        return
    if booking.prefilled and event.on:
        draft.changes.prefilled[event.attempt_id] = False  # who waits has begun
    waits = max(booking.waits + (1 if event.on else -1), 0)
    if waits != booking.waits:
        draft.changes.lending[event.attempt_id] = waits
