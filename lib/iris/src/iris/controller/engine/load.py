"""Loads the stored state into the engine's view."""

from typing import TypeVar

from iris.core.state.view import ClusterView
from iris.store.store import Store

View = TypeVar("View", bound=ClusterView)


def load_view(store: Store, kind: type[View]) -> View:
    """Return a view of the stored state. Tasks of ended jobs are loaded on demand."""
    stored = store.load(lean=True)
    return kind.load(
        stored.jobs,
        stored.tasks,
        stored.workers,
        store,
        stored.budgets,
        stored.endpoints,
        stored.stopping,
        stored.lost,
        stored.next_sequence,
    )
