import pytest

from iris.testing.scheduling import InMemoryCluster


@pytest.fixture
def cluster() -> InMemoryCluster:
    """A cluster without workers."""
    return InMemoryCluster()
