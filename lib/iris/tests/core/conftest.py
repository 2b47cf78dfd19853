from collections.abc import Callable

import pytest

from iris.core.state.view import ClusterView
from iris.domain.entities import Stopping
from support.iris.scheduling import InMemoryCluster, resources


@pytest.fixture
def cluster() -> InMemoryCluster:
    """A cluster with one worker, w, of 4 cores and 16 GiB."""
    made = InMemoryCluster()
    made.connect("w", resources(4, 16, 100))
    return made


def load_again(view: ClusterView, knows_stopping: bool = True) -> ClusterView:
    """Return the view that another controller process loads. From an earlier release it lacks the stopping attempts."""
    tasks = [task for of_job in view.tasks.values() for task in of_job]
    stopping = [
        (name, Stopping(booking.job_id, booking.worker_id, booking.held, booking.found))
        for name, booking in view.bookings.items()
        if booking.stopping and knows_stopping
    ]
    return ClusterView.load(
        view.jobs.values(), reversed(tasks), view.workers.values(), budgets=view.budgets.values(), stopping=stopping,
        lost=view.lost.items(),
    )  # fmt: skip


@pytest.fixture
def restarted() -> Callable[..., ClusterView]:
    return load_again
