"""Names the workers that take no work, and why, in the reasons of pending jobs."""

from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from typing import Final

from iris.core.state.view import ClusterView
from iris.domain.entities import Worker

_MAX_NAMED: Final = 5


def explain_no_worker(view: ClusterView) -> str:
    """Return why no worker takes any work."""
    cordoned = sorted(
        f"{worker.worker_id}: {worker.cordon_reason}" for worker in view.workers.values() if worker.cordon_reason
    )
    if cordoned:
        return f"no worker takes work; {len(cordoned)} of {len(view.workers)} known are cordoned ({some(cordoned)})"
    troubled = sorted(
        f"{worker.worker_id}: {worker.trouble}"
        for worker in view.workers.values()
        if worker.connected and worker.trouble and not worker.is_late
    )
    if troubled:
        return f"no worker takes work; {some(troubled)}"
    silent = sorted(worker.worker_id for worker in view.workers.values() if worker.connected)
    if silent:
        return f"no worker takes work; not heard for two heartbeats: {some(silent)}"
    return f"no worker is connected ({len(view.workers)} known)" if view.workers else "no worker is connected"


def out_of_use_text(label: str, view: ClusterView, would_do: Callable[[Worker], bool]) -> str:
    """Return the suitable workers that take no work, with the cause, as the end of a sentence; empty for none.

    Args:
        label: The words before the list.
        view: The view with the workers.
        would_do: Returns whether a worker is suitable for the job.
    """
    named = sorted(
        f"{worker.worker_id} ({_cause(worker)})"
        for worker in view.workers.values()
        if not worker.is_open and would_do(worker)
    )
    return f"; {label}: {some(named)}" if named else ""


def _cause(worker: Worker) -> str:
    if worker.cordon_reason:
        return f"cordoned: {worker.cordon_reason}"
    if worker.connected and not worker.is_late:
        return worker.trouble
    since = datetime.fromtimestamp(worker.last_seen_at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"{'not heard' if worker.connected else 'away'} since {since}"


def some(names: Collection[str] | Iterable[str]) -> str:
    """Return the first names of a list, and the number of further ones."""
    listed = list(names)
    more = len(listed) - _MAX_NAMED
    return ", ".join(listed[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
