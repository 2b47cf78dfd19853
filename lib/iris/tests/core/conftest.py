import pytest

from support.iris.scheduling import InMemoryCluster, resources


@pytest.fixture
def cluster() -> InMemoryCluster:
    """A cluster with one worker, w, of 4 cores and 16 GiB."""
    made = InMemoryCluster()
    made.connect("w", resources(4, 16, 100))
    return made
