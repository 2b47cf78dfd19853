"""Cordons hosts on which attempts repeatedly fail because of the host."""

from dataclasses import replace
from typing import Final

from iris.core.rules.draft import Draft
from iris.domain.events import AttemptObserved
from iris.domain.states import FailureKind, TaskState

MAX_STRIKES: Final = 3

# A command that is not there (START) speaks against its author: three typing errors must not close a host.
_SUSPICIOUS: Final = frozenset({FailureKind.DEVICE, FailureKind.WORKER})


def judge_host(draft: Draft, event: AttemptObserved, was_running: bool) -> None:
    """Count an attempt's end for or against its host. Cordon the host after MAX_STRIKES in a row.

    Device errors and failed starts count against the host. An accelerator that is busy before a start suffices alone.

    Args:
        draft: Receives the worker's changed record.
        event: The attempt's end.
        was_running: Whether the attempt was running, which proves that the host can start commands.
    """
    worker = draft.view.workers.get(event.worker_id)
    if worker is None:
        return
    worker = draft.changes.workers.get(event.worker_id, worker)
    if event.failure_kind in _SUSPICIOUS and event.state is not TaskState.SUCCEEDED:
        if event.failure_kind is not FailureKind.DEVICE and was_running:
            return
        # Before its start the worker has waited for the device, and tries of others would wait again.
        is_held = event.failure_kind is FailureKind.DEVICE and not (was_running or event.started_at_ms)
        strikes = MAX_STRIKES if is_held else worker.strikes + 1
        reason, since_ms = worker.cordon_reason, worker.cordoned_at_ms
        if strikes >= MAX_STRIKES and not reason:
            error = event.error or event.failure_kind.name.lower()
            why = "an accelerator stays busy" if is_held else f"{strikes} attempts in a row failed because of the host"
            reason = f"{why}: {event.attempt_id}: {error}"
            since_ms = draft.now_ms
        draft.changes.workers[event.worker_id] = replace(
            worker, strikes=strikes, cordon_reason=reason, cordoned_at_ms=since_ms
        )
    elif worker.strikes and (was_running or event.state is TaskState.SUCCEEDED):
        draft.changes.workers[event.worker_id] = replace(worker, strikes=0)
