import pytest

from support.iris.scheduling import InMemoryCluster


@pytest.fixture
def cluster() -> InMemoryCluster:
    """A cluster without workers."""
    return InMemoryCluster()
