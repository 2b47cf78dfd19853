"""Decides what answers, lists and hosts do to a slice. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from iris.autoscale.model import Answer, Outcome, SliceRecord, SliceState
from iris.autoscale.plan import SliceUse
from iris.autoscale.port import Phase, SliceFound
from iris.core.state.view import ClusterView
from iris.domain.ids import JobId, WorkerId

LISTS_UNTIL_GONE: Final = 2
"""A slice is gone when so many complete lists in turn lack it: a list may lag behind."""
_BEFORE_ANSWER: Final = (SliceState.WANTED, SliceState.REQUESTED)
_THERE: Final = (SliceState.REQUESTED, SliceState.BOOTING, SliceState.JOINED)
_MOST_NAME: Final = 60
_DELETED_BY: Final = "deleted by "
_STOPPED_BY: Final = "the cluster was stopped by "


def next_name(group: str, known: Iterable[str], prefix: str = "") -> str:
    """Return a name for a slice that no known one has had: the group's name, and a number above all others.

    Args:
        group: The name of the scale group.
        known: Names of slices, with the highest number of each group.
        prefix: The beginning of all names.
    """
    word = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in f"{prefix}{group}".lower())
    stem = word[: _MOST_NAME - 8].strip("-")
    if not stem[:1].isalpha():
        stem = f"s-{stem}"  # the provider's names begin with a letter
    numbers = (name.removeprefix(f"{stem}-") for name in known if name.startswith(f"{stem}-"))
    return f"{stem}-{max((int(number) + 1 for number in numbers if number.isdecimal()), default=0)}"


def wanted(name: str, group: str, now_ms: int, asked_by: str = "") -> SliceRecord:
    """Return the record of a slice to create. Store it before the provider is asked."""
    return SliceRecord(name, group, SliceState.WANTED, now_ms, now_ms, asked_by=asked_by)


def requested(record: SliceRecord, now_ms: int) -> SliceRecord:
    """Return the record of a slice for which the provider is asked next. Store it before the call."""
    return _to(record, SliceState.REQUESTED, now_ms) if record.state is SliceState.WANTED else record


def leaving(record: SliceRecord, reason: str, now_ms: int) -> SliceRecord:
    """Return the record of a slice to delete; of one that the provider was never asked for, that it is over."""
    if record.state.is_over or record.state is SliceState.LEAVING:
        return record
    if record.state is SliceState.WANTED:
        return _over(record, reason, now_ms)
    return _to(record, SliceState.LEAVING, now_ms, reason=reason)


def deleted_by(user: str) -> str:
    """Return the reason of a slice that a user deletes."""
    return f"{_DELETED_BY}{user}"


def stopped_by(user: str) -> str:
    """Return the reason of the slices of a cluster that a user stops."""
    return f"{_STOPPED_BY}{user}"


def _over(record: SliceRecord, reason: str, now_ms: int) -> SliceRecord:
    """Return the record of a slice that is gone. What a user asked for and nobody deleted has failed."""
    has_failed = record.asked_by and not reason.startswith((_DELETED_BY, _STOPPED_BY))
    return _to(record, SliceState.FAILED if has_failed else SliceState.GONE, now_ms, reason=reason)


def after_create(record: SliceRecord, answer: Answer, now_ms: int) -> SliceRecord:
    """Return the record after the answer to `create`. Without an answer, the next lists say whether it exists."""
    if record.state is not SliceState.REQUESTED:
        return record  # a list was faster, or it is to be deleted
    told = replace(record, outcome=answer.outcome, words=answer.words)
    if answer.outcome is Outcome.UNKNOWN:
        return told
    return _to(told, SliceState.BOOTING if answer.outcome is Outcome.DONE else SliceState.FAILED, now_ms)


def after_delete(record: SliceRecord, answer: Answer) -> SliceRecord:
    """Return the record after the answer to `delete`. Only lists say that it is gone."""
    if record.state is not SliceState.LEAVING:
        return record
    return replace(record, outcome=answer.outcome, words=answer.words)


def after_list(record: SliceRecord, found: SliceFound | None, now_ms: int) -> SliceRecord:
    """Return the record after a list that began after the last call for this slice had ended.

    Args:
        record: The slice.
        found: What the list says; None if the list is complete for its group and lacks it.
        now_ms: Unix ms.
    """
    if found is not None:
        return _listed(replace(record, unlisted=0), found, now_ms)
    if record.state is SliceState.WANTED or record.state.is_over:
        return record
    record = replace(record, unlisted=record.unlisted + 1)
    if record.unlisted < LISTS_UNTIL_GONE:
        return record
    if record.state is SliceState.REQUESTED:
        return _to(record, SliceState.FAILED, now_ms, reason=record.reason or "the provider does not list it")
    return _over(record, record.reason or "lost: the provider lists it no more", now_ms)


def _listed(record: SliceRecord, found: SliceFound, now_ms: int) -> SliceRecord:
    is_live = found.phase in (Phase.CREATING, Phase.READY)
    was_never_made = record.state is SliceState.FAILED and record.outcome is not Outcome.DONE
    if record.state in _BEFORE_ANSWER or (was_never_made and is_live):
        record = _to(record, SliceState.BOOTING, now_ms)
    elif record.state.is_over:
        record = _to(record, SliceState.LEAVING, now_ms, reason=record.reason or "it is listed although it had failed")
    if record.state is SliceState.BOOTING:
        record = replace(record, words=found.words)
    if found.phase is Phase.READY and not record.ready_ms:
        record = replace(record, ready_ms=now_ms)
    return record


def adopted(found: SliceFound, groups: Iterable[str], now_ms: int) -> SliceRecord:
    """Return the record of a listed slice that has none: kept if its group is known, else to be deleted."""
    is_known = found.group in groups
    state = SliceState.BOOTING if is_known else SliceState.LEAVING
    reason = "" if is_known else f"the cluster file has no scale group {found.group!r}"
    ready_ms = now_ms if found.phase is Phase.READY else 0
    return SliceRecord(found.name, found.group, state, now_ms, now_ms, ready_ms=ready_ms, reason=reason)


def after_use(record: SliceRecord, hosts: int, use: SliceUse, now_ms: int) -> SliceRecord:
    """Return the record with what its hosts say: that all have joined, or that there is work.

    Args:
        record: The slice.
        hosts: The number of its hosts.
        use: What the controller knows of its hosts.
        now_ms: Unix ms.
    """
    if record.state in (SliceState.REQUESTED, SliceState.BOOTING) and use.joined >= hosts:
        return replace(_to(record, SliceState.JOINED, now_ms), joined_ms=now_ms, used_ms=now_ms, words="")
    is_used = record.state is SliceState.JOINED and (use.busy or use.is_needed)
    return replace(record, used_ms=now_ms) if is_used else record


def use_of(
    record: SliceRecord,
    workers: Iterable[WorkerId],
    found: SliceFound | None,
    view: ClusterView,
    kept: Mapping[WorkerId, JobId],
    is_present: Callable[[WorkerId], bool],
) -> SliceUse:
    """Return what the controller and the provider know of a slice's hosts.

    Args:
        record: The slice.
        workers: The worker ids of its hosts, in order.
        found: What the last list said; None if it lacked the slice.
        view: The cluster.
        kept: Workers that the scheduler keeps for a waiting job.
        is_present: Returns whether a worker is connected, or may still reconnect.
    """
    joined = busy = closed = 0
    is_needed, lost, ill = False, set[int](), dict[int, str]()
    for number, worker_id in enumerate(workers):
        worker = view.workers.get(worker_id)
        if worker is None:
            if record.joined_ms:
                lost.add(number)
            continue
        has_work = next(iter(view.attempts_on(worker_id)), None) is not None
        busy += has_work
        joined += worker.connected
        closed += worker.connected and not has_work and not worker.is_open
        is_needed |= worker_id in kept or bool(worker.cordon_reason and worker.cordoned_by)
        if not worker.connected and not is_present(worker_id):
            lost.add(number)
        if worker.connected and worker.cordon_reason and not worker.cordoned_by:
            ill[number] = worker.cordon_reason
    broken = ""
    if ill and not busy and record.state is SliceState.JOINED:
        # The controller cordoned a host that made attempts fail: the slice is replaced once it has no work.
        lost.update(ill)
        broken = "; ".join(f"host {number} is cordoned: {reason}" for number, reason in ill.items())
    if found is not None:
        lost.update(found.hosts_lost)
        if found.phase in (Phase.BROKEN, Phase.DELETING) and record.state in _THERE:
            broken = found.words or f"the provider says that it is {found.phase}"
    return SliceUse(joined, busy, closed, is_needed, tuple(sorted(lost)), broken)


def seen_ms(workers: Iterable[WorkerId], view: ClusterView) -> Mapping[WorkerId, int]:
    """Return when each host that is away was last seen. Hosts that never joined have no entry."""
    found = ((worker_id, view.workers.get(worker_id)) for worker_id in workers)
    return {worker_id: host.last_seen_at_ms for worker_id, host in found if host is not None and not host.connected}


def still_away(workers: Iterable[WorkerId], view: ClusterView, before: Mapping[WorkerId, int]) -> frozenset[int]:
    """Return the numbers of hosts that have not returned since `before`, the `seen_ms` at the controller's start."""
    now = seen_ms(workers, view)
    return frozenset(
        number
        for number, worker_id in enumerate(workers)
        if worker_id not in view.workers or (worker_id in now and now[worker_id] == before.get(worker_id))
    )


def is_loss(record: SliceRecord, use: SliceUse) -> bool:
    """Return whether a slice that leaves is lost: it broke, a host of it is lost, or it never joined."""
    return bool(use.broken or use.lost or not record.joined_ms)


def _to(record: SliceRecord, state: SliceState, now_ms: int, reason: str | None = None) -> SliceRecord:
    return replace(
        record, state=state, changed_ms=now_ms, unlisted=0, reason=record.reason if reason is None else reason
    )
