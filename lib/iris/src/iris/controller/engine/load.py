"""What is stored, as the view that the engine works on."""

from typing import TypeVar

from iris.core.state.view import ClusterView
from iris.store.store import Store

View = TypeVar("View", bound=ClusterView)


def load_view(store: Store, kind: type[View]) -> View:
    """Everything that the store has; tasks of ended jobs stay there until somebody asks for them."""
    stored = store.load(lean=True)
    return kind.load(
        stored.jobs,
        stored.tasks,
        stored.workers,
        store.tasks_of,
        stored.budgets,
        stored.endpoints,
        stored.stopping,
        stored.lost,
    )
